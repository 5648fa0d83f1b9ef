"""The first room: PostgreSQL's side of the wire. Bytes of the replication stream come out, confirmations go in.

Before: a PostgreSQL server with `wal_level=logical`.
After: `pgoutput` decodes what `walsender` reads; `progress` decides what `walsender` confirms.

- `replication`: the three messages inside the stream's CopyData, from and to bytes. Pure.
- `pacing`: when to read at once and when to let the stream gather. Pure.
- `refusals`: what PostgreSQL's errors mean, and what cures them. Pure.
- `walsender`: the one replication connection.
- `session`: an ordinary connection for the questions that the next three ask.
- `slot`, `publication`, `catalogue`: what the server keeps for us, what it publishes, what its types are.
"""
