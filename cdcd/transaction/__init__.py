"""Messages -> committed transactions of known relations.

`assembler` follows the stream, by the states of `stream_state`. `change_router` hands each change on to the
`change_consumer`, by the `relations` that are in force; `request_rows` takes the requests out. `spooled_transactions`
keeps transactions that may yet be rolled back in the `spool`, on disk in a `spool_file`. `event_format` and
`record_consumer` are the interfaces of the encoders, and of the sink that takes their records.

`column_rules` says which columns are left out or masked, `column_masks` does it in the bytes. Rows pass it in
`masked_changes` on the way to a consumer, and in `spooled_masks` on the way to the spool. `headed_events` stands around
an encoder, and gives its records the headers that `record_headers` makes. `tuple_checks` is for the encoders.
"""
