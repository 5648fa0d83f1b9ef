"""pgoutput's bytes <-> messages, for protocol versions 1 to 4.

Before: `source` hands over one CopyData frame at a time, and the offset at which the pgoutput message starts in it.
After: `transaction` puts the messages together into committed transactions; `avro` transcodes rows out of the frames.

Nothing here does I/O, and nothing is remembered from one message to the next. Reading order: `cursor` (bounds and
errors), `tuples` (the columns of a row), `messages` (the vocabulary), `decoder`, `encoder`.

Source: PostgreSQL, "Logical Replication Message Formats" and "Logical Streaming Replication Protocol";
`src/backend/replication/logical/proto.c`, PostgreSQL 14 to 18.
"""
