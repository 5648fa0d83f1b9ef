"""Publishes complete PostgreSQL transactions to Kafka, exactly once, together with the progress.

In the order of the flow:

    batches              gathers events by table
    batch_queue          carries batches to the thread that owns the producer
    worker               is that thread
    commit_schedule      decides what it does next, and so when a Kafka transaction is committed
    publisher            puts rows, table records and slot record into a Kafka transaction
    kafka_transaction    what one Kafka transaction holds
    table_topics         finds and makes the topics
    table_records        where the newest table record of each topic is
    own_topics           judges the settings of cdcd's own topics
    table_keys           keeps the key of each table's last events, and says when it changes
    topics, partitioner  name the topics, and the partition of each record
    parking/             parked and deferred tables: their events go to the parked topic
    hanging_transactions decides what an earlier producer left undecided
    interfaces           the operations that all of these need of Kafka
    kafka/               the only modules that know confluent-kafka
"""
