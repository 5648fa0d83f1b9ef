"""Messages -> committed transactions of known relations.

`relations` keeps what a relation is at this point of the stream, `spool` (with `spool_file` and `replay`) what may yet
be rolled back. `assembler` follows the stream and hands every change of a committed transaction on, in commit order;
`changes` is what it hands them to.
"""
