"""From another program's connector to cdcd: `cdcd migrate`. It knows Debezium's connector for PostgreSQL.

`connector_file` reads the connector's configuration, `conversion` makes settings of it, by `connector_options`
and `name_patterns`.
"""
