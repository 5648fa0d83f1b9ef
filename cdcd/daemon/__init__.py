"""`cdcd run`: supervision, a start in its order, and the loop that moves rows from PostgreSQL to Kafka.

In the order of a start: `process` has signals and monitoring around the `supervisor`, which runs one stream after
another. `stream_startup` knows the order of a start: `publication_setup`, `slot_setup`, `kafka_takeover`, `wiring`. All
of these reach the world through `clients`. `pipeline` is the loop.
"""
