"""PostgreSQL's side: the stream, the acknowledgements, and questions to the server. One module asks for each fact.

Before: a PostgreSQL server with `wal_level=logical`.
After: `pgoutput` decodes what `replication_stream` reads; `progress` decides what `replication_stream` confirms.

The stream:

- `connection`: a replication connection; it makes slots.
- `replication_stream`: the stream of that connection.
- `start_options`: the options that pgoutput gets.
- `copy_data`, `stream_messages`: frames of CopyData out of libpq's buffer; the three messages inside, from and to
  bytes.
- `read_pacing`, `liveness`: when to read, and when the server counts as dead. Pure.

Facts of the server, asked over an ordinary connection (`session`, behind the interface `query_runner`):

- `server`, `synchronous_standby`, `standby_slots`: its parameters; whether COMMITs wait for the daemon; the standbys
  that a failover slot waits for.
- `slot`, `slot_conflicts`: the slot; other slots on the same topics.
- `slot_wait`, `write_transactions`: what a new slot waits for, and the primary of a standby, which is asked for it.
- `publication`, `published_tables`, `table_selection`: the publication, its tables, and patterns that name tables.
- `requests_table`: the table of requests to the daemon, and who may own it.
- `privileges`, `replica_identity`: what the role may read, and what of an old row reaches the WAL.
- `catalog`, `pg_types`: types and keys by OID.
- `heaps`, `exported_snapshot`: where rows lie, and a snapshot of them at an exact LSN.

Text: `identifiers` quotes names; `server_errors` gives each error of the server a class and a hint; `text_conversion`
converts what the server cannot convert as a whole.
"""
