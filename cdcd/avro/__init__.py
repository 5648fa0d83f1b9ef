"""Changes -> Avro keys and events, with their schemas.

Before: `transaction` gives the changes of the stream, `snapshot` the rows of a snapshot.
After: `sink.batches` takes the keys and events.

- `avro_format`: makes the encoders and their schema stores, for the daemon.
- `event_encoder`, `key_encoder`, `envelope_writer`: write the records.
- `envelope_fields`: the fields of an event, in their order.
- `codecs`: the values of each PostgreSQL type.
- `schema`, `avro_names`: the schemas of a relation, and the names in them.
- `schema_store`, `registry_store`, `single_object`: make schemas known to readers, and name them in each record.
- `registry_ids`, `registry_requests`, `registry_answers`, `registry_subjects`: ask a schema registry.
- `type_forms`: the way back from Avro to PostgreSQL, for readers.
"""
