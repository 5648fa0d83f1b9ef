"""cdcd's events as JSON: what the Avro form holds, translated record by record.

Before: `avro` makes keys and events, in both wire modes of the server to the same bytes.
After: `sink.batches` takes their JSON.

So every value has one JSON form, which its Avro type decides, and nothing is written here that Avro lacks.

- `json_format`: makes the encoders, for the daemon.
- `json_records`: stands between the encoders and the sink, and translates.
- `forms`, `form_lookup`: the JSON of each Avro type. `connect_schemas`: Connect's schema of an Avro schema.
- `event_head`: reads the position of an event.
"""
