"""Changes -> Avro keys and events, with their schemas.

`avro_format` is what the daemon chooses: it makes the encoders and their schema stores. `event_encoder` and
`key_encoder` write the records, `envelope_fields` has the order of an event's fields, `codecs` transcodes the values of
each PostgreSQL type. `schema` builds the schemas of a relation, with the names that `avro_names` makes; `schema_store`
and `registry_store` make them known. `type_forms` is the way back, for readers.
"""
