"""A truncate on a compacted topic, whose key is that of no row, is read in both encodings and on shared topics."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from confluent_kafka import Message

from cdcd.avro.avro_format import AvroFormat
from cdcd.avro.avro_names import namespace
from cdcd.avro.codecs.lookup import TypeOptions, codecs_for
from cdcd.avro.schema import envelope_schema, key_schema
from cdcd.json_events.json_format import JsonFormat
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.reading.json_translator import JsonTranslator
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation
from cdcd.verify import topic_replay
from cdcd.verify.event_rows import EventReader
from cdcd.verify.row_hashes import HashFiles, KeyedHash, schema_size
from cdcd.verify.row_store import RowStore
from cdcd.verify.topic_hashes import TopicHashes

INT4 = PgType(23, "pg_catalog", "int4")
LSN = 1_000


class Published:
    """Events of the table s.t, with its schemas: two rows, a truncate, and one of the rows again."""

    def __init__(self, encoding: str, *, shares_topic: bool) -> None:
        self.schemas: dict[Any, str] = {}
        self.shares_topic = shares_topic
        topic = (lambda _, __: "p.all") if shares_topic else None
        batches = BatchBuilder(tombstones=True, shared_topic=topic)
        avro = AvroFormat("decimal", "UTF8")
        made = avro if encoding == "avro" else JsonFormat(avro, with_schemas=encoding == "json-schema")
        encoder = made.stream_encoder(batches)
        tables = [self.relation("t"), self.relation("u")] if shares_topic else [self.relation("t")]
        encoder.begin(200, 1, 7)
        for relation in tables:
            changes = encoder.open_relation(relation)
            for row in (b"1", b"2"):
                changes.insert(b"N" + encode_tuple([row]), 0, 150)
            changes.truncate(150, False, False)
            changes.insert(b"N" + encode_tuple([b"1" if relation.name == "t" else b"3"]), 0, 150)
        encoder.commit(208)
        batch = batches.build()
        self.schemas |= dict(batch.schemas)
        [table] = batch.tables
        self.messages = [
            Message(topic="p.all", partition=0, offset=at, key=each.get("key"), value=each["value"])
            for at, each in enumerate(table.messages)
        ]
        self.translator = None
        if encoding != "avro":
            codecs = codecs_for(tables[0].types, TypeOptions())
            key, value = key_schema(tables[0], codecs), envelope_schema(tables[0], codecs)
            note, with_schemas = self.schemas.__setitem__, encoding == "json-schema"
            self.translator = JsonTranslator(json.loads(key), json.loads(value), note, with_schemas=with_schemas)
        self.events = EventReader(self.schemas.__getitem__)
        self.of_table = namespace("s", "t") if shares_topic else ""

    def relation(self, name: str) -> ResolvedRelation:
        found = ResolvedRelation(1, "s", name, "d", [ResolvedColumn("id", INT4, -1, True)])
        found.shared_topic = "p.all" if self.shares_topic else ""
        return found


@pytest.fixture(params=["avro", "json", "json-schema"])
def encoding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True])
def published(request: pytest.FixtureRequest, encoding: str) -> Published:
    return Published(encoding, shares_topic=request.param)


def test_the_hashes_take_the_truncate(published: Published, tmp_path: Path) -> None:
    of_table: Callable[[bytes], bool] | None = None
    if published.of_table:
        of_table = lambda header: published.events.is_of(header, published.of_table)  # noqa: E731
    files = HashFiles(tmp_path, "topic")
    hashes = TopicHashes(files, KeyedHash(1), LSN, lambda _: True, published.translator, of_table)
    hashes.take(published.messages, {0: len(published.messages)})
    assert hashes.floors == {0: 2}
    assert hashes.ended == {0}
    assert len(hashes.key_headers[0]) == 1


class Reader:
    """In place of TopicReader: the topic has these records."""

    messages: ClassVar[list[Message]] = []

    def __init__(self, _: object, on_end: object = None, with_uncommitted: bool = False) -> None:
        self._left = iter([self.messages])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def partitions(self, _: str) -> list[int]:
        return [0]

    def bounds(self, _: str, __: int) -> tuple[int, int]:
        return 0, len(self.messages)

    def assign(self, _: Iterable[object]) -> None:
        pass

    def pause(self, _: str, __: object) -> None:
        pass

    resume = pause

    def read(self, _: int) -> Iterator[Message]:
        yield from next(self._left, [])


@pytest.mark.parametrize("is_limited", [False, True])
def test_a_replay_takes_the_truncate_whatever_keys_count(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_limited: bool
) -> None:
    monkeypatch.setattr(Reader, "messages", published.messages)
    monkeypatch.setattr(topic_replay, "TopicReader", Reader)
    hashed = KeyedHash(1)
    key = published.messages[1].key() or b""
    wanted = key if published.translator is None else published.translator.key(key)
    only: Callable[[bytes], bool] | None = None
    if is_limited:

        def only(key: bytes) -> bool:
            return hashed.key(key, schema_size(key)) == hashed.key(wanted, schema_size(wanted))

    replay = topic_replay.TopicReplay({}, published.events, ProgressBar(io.StringIO()))
    with closing(RowStore(tmp_path / "rows", [0])) as store:
        found = replay.replay("p.all#s.t", LSN, ["id"], store, only, published.translator, published.of_table)
        rows = sum(part.rows for part in store.finish().values())
    assert found.events == len(published.messages)
    assert rows == (0 if is_limited else 1), "the second row is gone since the truncate"
