"""Lake tables that follow the topics.

`wiring` makes a mirror of its options. `mirror` runs it: `planner` chooses the next cut, `run_log` keeps the plans,
`batches` reads the events, `table_merge` makes rows of each table's, `table_write` appends them (`new_rows`) or merges
them (`merge_sql`), `schema_evolution` alters tables, `targets` has the table formats.
`histories` keeps events and versions in place of rows, `per_table` says which table is of which kind, `reader_views`
shows what is published.
"""
