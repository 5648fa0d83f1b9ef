"""Changes -> Debezium's events, as Kafka Connect's JSON with or without schemas, or as its Avro.

Before: `transaction` gives the changes of the stream, `snapshot` the rows of a snapshot; `avro.codecs` reads some of
PostgreSQL's binary forms, and writes some of Avro's.
After: `sink.batches` takes the keys and events.

- `debezium_format`: makes the encoders, for the daemon.
- `event_encoder`, `event_writer`, `row_encoder`, `message_encoder`, `key_encoder`, `field_writer` write records.
  `event_form` is what an encoding says around the values: `json_form`, `avro_form`. `event_head` reads an event.
- `modes`: what a user chooses of the format.
- `connect_schema`, `event_schema`, `relation_schemas`: Connect's schemas. `debezium_names`: the names in them.
- `values`: the values of each PostgreSQL type. `default_values`: the values of DEFAULT expressions.
- `json_text`: JSON, as Connect writes it. `avro_data`: Avro, and its schemas. `header_text`: keys in headers.
  `java_maps`: the order of pairs.
"""
