"""From another program's connector to cdcd: `cdcd migrate`. It knows Debezium's connector for PostgreSQL.

`connector_file` reads the connector's configuration, `conversion` makes settings of it, by `connector_options`
and `name_patterns`. `handover` takes the slot and the topics over: `held_slot` streams, `captured_tables` and
`likeness` compare the connector with the settings, `topic_tails` and `published_change` read what it has published, and
`seam` leaves that out. `handback` says where the connector goes on that gets its slot back.
"""
