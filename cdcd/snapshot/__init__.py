"""The copy of the tables as they stood at one LSN, read in pieces beside the stream, and stitched to it there.

`published_tables` says what the published tables are, `plan` which blocks are to be read, `exported` takes the snapshot
and `reader` reads under it; `rows` makes of a row of COPY what the encoder takes, `table_copier` what Kafka is to hold.
"""
