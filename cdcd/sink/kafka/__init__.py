"""The only modules that import confluent-kafka: clients, their settings, their errors."""
