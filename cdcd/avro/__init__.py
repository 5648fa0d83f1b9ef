"""Changes -> Avro keys and events, with their schemas.

`types` picks a codec for each column (`numbers`, `strings`, `datetimes`, `nested` hold them, in binary and in text
form), `names` makes Avro names of PostgreSQL's, `schema` builds the schemas of a relation, `registry` makes them known,
`event_encoder` encodes, and `records` is what it hands its records to.
"""
