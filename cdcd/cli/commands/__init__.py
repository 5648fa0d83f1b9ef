"""One file a command of `cdcd`."""
