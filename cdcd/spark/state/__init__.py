"""Events folded to rows: collapse per key, keyless rows, a table as of one LSN."""
