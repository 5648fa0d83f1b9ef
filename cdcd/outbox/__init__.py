"""The outbox: rows and logical messages that applications write as events of their own, each to the topic it names.

`outbox_rules` says which table and which messages, `outbox_events` publishes their events, `message_content` reads the
content of a message. `outbox_format` puts this around any event format.
"""
