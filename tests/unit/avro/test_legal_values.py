"""Legal values and names that stopped the daemon, or made an event that nobody can read."""

from __future__ import annotations

import io
import json
import os
import socket
import struct
from threading import Thread
from typing import Any

import fastavro
import psycopg
import pytest
from support.avro_values import UNREPRESENTABLE, read_back, transcode

from cdcd.avro.avro_names import field_names
from cdcd.avro.codecs.lookup import TypeOptions, codec_for, has_known_binary
from cdcd.avro.event_encoder import EventEncoder, RowEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.errors import BinaryFormatUnsupported
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.source.session import parameters
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation


def catalog(name: str, **more: Any) -> PgType:
    return PgType(more.pop("oid", 1), "pg_catalog", name, **more)


class Records:
    """The events of one table, read back by their own schemas."""

    def __init__(self) -> None:
        self.builder = BatchBuilder(tombstones=False)

    @property
    def found(self) -> list[tuple[Any, Any]]:
        batch = self.builder.take()
        schemas = {fingerprint: fastavro.parse_schema(json.loads(text)) for fingerprint, text in batch.schemas}

        def read(data: bytes | None) -> Any:
            if data is None:
                return None
            return fastavro.schemaless_reader(io.BytesIO(data[10:]), schemas[data[2:10].hex()], None)

        [made] = batch.tables
        return [(read(message.get("key")), read(message["value"])) for message in made.messages]


def table(*columns: ResolvedColumn) -> tuple[Records, RowEncoder]:
    records = Records()
    encoder = EventEncoder(records.builder, FingerprintStore(records.builder), TypeOptions())
    rows = encoder.open_relation(ResolvedRelation(7, "public", "t", "d", list(columns)))
    encoder.begin(1, 0, 1)
    return records, rows


def test_a_key_column_may_be_called_unrepresentable() -> None:
    records, rows = table(ResolvedColumn("unrepresentable", catalog("date"), -1, True))
    rows.insert(b"N" + encode_tuple([b"infinity"]), 0, 1)
    [(key, _)] = records.found
    assert key == {
        "unrepresentable": None, "_unrepresentable": [{"column": "unrepresentable", "text": "infinity"}],
    }  # fmt: skip


def test_two_types_whose_names_are_the_same_with_a_dot_between_are_two() -> None:
    one = PgType(50, "a", "b.c", kind="c", fields=(("x", catalog("int4", oid=23), -1),))
    other = PgType(51, "a.b", "c", kind="c", fields=(("y", catalog("text", oid=25), -1),))
    columns = [ResolvedColumn(name, of, -1, False) for name, of in (("p", one), ("q", other), ("r", other), ("s", one))]
    records, rows = table(*columns)
    rows.insert(b"N" + encode_tuple([b"(1)", b"(ab)", b"(cd)", b"(2)"]), 0, 1)
    [(_, event)] = records.found
    assert event["after"] == {"p": {"x": 1}, "q": {"y": "ab"}, "r": {"y": "cd"}, "s": {"x": 2}}


def test_what_seems_to_start_an_escape_before_a_character_that_gets_one_is_escaped() -> None:
    assert len(set(field_names(["_x20é", " xe9_"]))) == 2


def test_hstore_of_a_converted_database_is_read_as_text() -> None:
    """`hstore_send` gives the length before the conversion, 1, and the text after it, 2 bytes."""
    hstore = PgType(5003, "public", "hstore")
    assert has_known_binary(hstore)
    assert not has_known_binary(hstore, "LATIN1")
    assert not has_known_binary(PgType(5004, "public", "_hstore", element=hstore, is_array=True), "EUC_JP")
    codec = codec_for(hstore, -1, TypeOptions(converted=True))
    with pytest.raises(BinaryFormatUnsupported):
        transcode(codec, "binary", struct.pack(">ii", 1, 1) + b"k" + struct.pack(">i", 1) + "é".encode())
    assert read_back(codec, transcode(codec, "text", '"k"=>"é"'.encode())) == {"k": "é"}


def test_a_char_of_a_converted_database_is_a_character_before_version_16() -> None:
    codec = codec_for(catalog("char"), -1, TypeOptions())
    assert read_back(codec, transcode(codec, "text", "é".encode())) == "é"
    assert transcode(codec, "binary", b"\xe9") is not UNREPRESENTABLE


def test_the_environment_does_not_undo_the_pinned_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTZ", "Europe/Berlin")
    monkeypatch.setenv("PGDATESTYLE", "German")
    sent: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                while not sent:
                    packet = connection.recv(struct.unpack(">i", connection.recv(4))[0] - 4)
                    if packet[:2] == b"\x04\xd2":  # SSL, GSS: no
                        connection.send(b"N")
                    else:
                        sent.extend(packet[4:].lower().split(b"\0"))

        thread = Thread(target=answer)
        thread.start()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(**parameters(f"postgresql://u@127.0.0.1:{listening.getsockname()[1]}/d", "t"))
        thread.join()
    assert b"timezone" not in sent
    assert b"datestyle" not in sent
    assert "PGTZ" not in os.environ


def as_verified(pgtype: PgType, text: bytes) -> str:
    """What `cdcd verify` makes of a value, by the schema that the daemon writes."""
    from cdcd.avro.schema import envelope_schema
    from cdcd.reading.postgres_text import renderers

    column = ResolvedColumn("v", pgtype, -1, False)
    records, rows = table(column)
    rows.insert(b"N" + encode_tuple([text]), 0, 1)
    relation = ResolvedRelation(7, "public", "t", "d", [column])
    schema = json.loads(envelope_schema(relation, [codec_for(pgtype, -1, TypeOptions())]))
    [before] = [field for field in schema["fields"] if field["name"] == "before"]
    [(_, _, render)] = renderers(before["type"][1], {})
    return render(records.found[0][1]["after"]["v"])


INT4 = catalog("int4", oid=23)
BOX = catalog("box", delimiter=";")
GEOMETRY = PgType(5000, "public", "geometry", delimiter=":")
PERIOD = tuple((name, INT4, -1) for name in ("months", "days", "micros"))
FLAGS = tuple((name, catalog("bool", oid=16), -1) for name in ("lower_inc", "upper_inc", "empty"))


@pytest.mark.parametrize(
    ("pgtype", "text"),
    [
        (catalog("_box", element=BOX, is_array=True), b"{(3,4),(1,2);(1,1),(0,0)}"),
        (PgType(5001, "public", "_geometry", element=GEOMETRY, is_array=True), b"{0101:0102}"),
        (PgType(5002, "a", "p", kind="c", fields=PERIOD), b"(1,2,3)"),
        (PgType(5003, "a", "s", kind="c", fields=(("lower", INT4, -1), ("upper", INT4, -1), *FLAGS)), b"(1,2,t,f,f)"),
    ],
)
def test_verify_writes_values_as_the_server_does(pgtype: PgType, text: bytes) -> None:
    assert as_verified(pgtype, text) == text.decode()
