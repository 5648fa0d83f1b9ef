"""One file a family of PostgreSQL types: the value's bytes or text to Avro."""
