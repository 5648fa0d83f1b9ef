"""Snapshots of tables: the rows as they stood at one LSN, read in pieces while the stream goes on.

`published_relations` says how the stream would announce the tables, `chunks` divides them, `reader` reads a chunk under
an exported snapshot, `copy_format` parses the rows, `encoder` makes events of them and tracks each table.
`repair_events` makes events of the rows of some keys.
"""
