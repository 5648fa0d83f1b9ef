"""The first room: PostgreSQL's side of the wire. Bytes of the replication stream come out, confirmations go in.

Before: a PostgreSQL server with `wal_level=logical`.
After: `pgoutput` decodes what `replication_stream` reads; `progress` decides what `replication_stream` confirms.

- `stream_messages`: the three messages inside the stream's CopyData, from and to bytes. Pure.
- `read_pacing`: when to read at once and when to let the stream gather. Pure.
- `server_errors`: what PostgreSQL's errors mean, and what cures them. Pure.
- `replication_stream`: the one replication connection.
- `session`: an ordinary connection for the questions that the next three ask.
- `slot`, `publication`, `catalog`: what the server keeps for us, what it publishes, what its types are.
"""
