from __future__ import annotations

from cdcd.avro.schema_store import SchemaStore
from cdcd.avro.single_object import fingerprint, header
from cdcd.progress.daemon_requests import MESSAGES
from cdcd.sink.parking.registry_headers import RegistryHeaders
from cdcd.transaction.record_consumer import TRANSACTIONS

TABLE = ("public", "t")
TEXT = '"int"'
REGISTERED = b"\x00\x00\x00\x00\x07"


class Registry(SchemaStore):
    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, str]] = []

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        self.asked.append((schema, name, subject, text))
        return REGISTERED


def test_a_fingerprint_gives_way_to_the_registrys_header_which_is_asked_for_once_a_schema() -> None:
    registry, known = Registry(), {fingerprint(TEXT).hex(): TEXT}
    headers = RegistryHeaders(registry, known.__getitem__)
    for row in (b"one", b"two"):
        assert headers(TABLE, "value", header(fingerprint(TEXT)) + row) == REGISTERED + row
    assert registry.asked == [(*TABLE, "value", TEXT)]
    headers(TABLE, "key", header(fingerprint(TEXT)))
    assert len(registry.asked) == 2, "keys have a subject of their own"


def test_a_record_that_the_registry_names_already_stays_as_it_is() -> None:
    registry = Registry()
    assert (
        RegistryHeaders(registry, dict[str, str]().__getitem__)(TABLE, "value", REGISTERED + b"row")
        == REGISTERED + b"row"
    )
    assert registry.asked == []


def test_what_an_application_wrote_into_its_outbox_stays_as_it_is_and_logical_messages_do_not() -> None:
    registry, known = Registry(), {fingerprint(TEXT).hex(): TEXT}
    headers = RegistryHeaders(registry, known.__getitem__)
    for payload in (header(fingerprint(TEXT)) + b"row", header(b"unknown!") + b"row", b"\xc3\x01"):
        assert headers(("", "outbox.Order"), "value", payload) == payload
    for table in (MESSAGES, TRANSACTIONS):
        assert headers(table, "value", header(fingerprint(TEXT)) + b"row") == REGISTERED + b"row"
