"""The progress in Kafka, and the position that may be acknowledged to PostgreSQL because of it. No I/O.

`records`, `snapshot_records` and `repair_records` are the progress as it stands on its topics: values, to JSON and
back. `ack_tracker` derives the LSN to acknowledge. `continuity` checks that slot, server and progress belong together,
`topic_evidence` that Kafka's topics hold what the progress says. `daemon_requests` are the requests that a person makes
by a row in a table. `sink` writes and reads the records, `source` sends the acknowledgement.
"""
