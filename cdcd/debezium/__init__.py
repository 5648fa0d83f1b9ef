"""Changes -> Debezium's events, as Kafka Connect's JSON with or without schemas.

Before: `transaction` gives the changes of the stream, `snapshot` the rows of a snapshot; `avro.codecs` reads some of
PostgreSQL's binary forms.
After: `sink.batches` takes the keys and events.

- `debezium_format`: makes the encoders, for the daemon.
- `event_encoder`, `event_writer`, `row_encoder`, `message_encoder`, `key_encoder`, `field_writer` write records,
  with the `source_block`. `event_head` reads one.
- `modes`: what a user chooses of the format.
- `connect_schema`, `event_schema`: Connect's schemas. `debezium_names`: the names in them.
- `values`: the values of each PostgreSQL type. `default_values`: the values of DEFAULT expressions.
- `json_text`: JSON, as Connect writes it.
"""
