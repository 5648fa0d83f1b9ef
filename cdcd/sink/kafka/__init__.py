"""The Kafka clients: the only modules of the sink that import confluent-kafka."""
