"""The consumer's side of the wire format: reads the topics back.

- `consumer`: committed records of topics. `schema_finder`: the schemas that they name. `decoder`: their values.
- `postgres_text`: a value as PostgreSQL writes it. `table_schemas`: the schemas that tables will get.
- `slot_progress`: the progress of a slot, for the commands that run next to a daemon.
"""
