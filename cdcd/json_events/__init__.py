"""cdcd's events as JSON: another form of the same envelope, and of the values that the Avro types hold.

Before: the encoders of `avro` read changes, in both wire modes of the server.
After: they write keys and events with these, to the same bytes in both modes.

So every value has one JSON form, which its Avro type decides, and nothing is written here that Avro lacks.

- `json_format`: makes the encoders, for the daemon.
- `envelope`: what is around the rows. `connect_schemas`: Connect's schema of an Avro schema.
- `values`: from PostgreSQL's form of a value to JSON. `forms`, `form_lookup`: from Avro to JSON, for rare types.
- `event_head`: reads the position of an event.
"""
