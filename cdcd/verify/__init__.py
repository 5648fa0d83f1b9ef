"""`cdcd verify`: compares the rows in the topics with the rows in the tables, at one exact LSN.

- `comparison`: the steps, and the differences.
- `postgres_checksums`: PostgreSQL's side. `progress_wait`: waits until Kafka has everything up to the LSN.
- `topic_replay`, `commit_order`, `event_rows`, `row_store`: Kafka's side: events, in order, become rows.
"""
