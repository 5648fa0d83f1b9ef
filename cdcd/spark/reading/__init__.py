"""The topics as DataFrames.

`kafka` reads ranges of topics, `cuts` says where a cut ends in them. `writer_schemas` finds the schemas; `types` and
`type_table` give each column its type. `decoding` makes typed events, `topics` joins all of these for one prefix.
"""
