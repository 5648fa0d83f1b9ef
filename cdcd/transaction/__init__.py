"""Messages -> committed transactions of known relations.

`relations` keeps what a relation is at this point of the stream, `assembler` follows Begin and Commit and hands every
change on in commit order, `changes` is what it hands them to.
"""
