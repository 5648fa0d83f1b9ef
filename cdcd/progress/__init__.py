"""What is durable in Kafka, and what may be acknowledged to PostgreSQL because of it.

`records` is the progress as it stands on the topic `{prefix}.progress`: pure values, JSON and back. `ack_tracker`
derives from what was received and what is durable the one position that may be acknowledged. Neither does any I/O:
`sink` writes and reads the records, `source` sends the acknowledgement.
"""
