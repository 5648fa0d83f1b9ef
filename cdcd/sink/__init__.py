"""Publishes whole PostgreSQL transactions to Kafka, exactly once, with the progress that they make.

In the order of the flow: `batches` gathers events by table, `batch_queue` carries batches to the thread that owns the
producer, `thread` is that thread, `group_commit` says when a Kafka transaction ends, `publisher` puts rows, table
records and slot record into it, `kafka_transaction` keeps count of them, `topics` and `partition` say where each goes;
`parking.state` knows which tables' events go to the parked topic instead, `parking` what they look like there. Only the
modules called `kafka_*` know confluent-kafka; the others see what `producer` describes.
"""
