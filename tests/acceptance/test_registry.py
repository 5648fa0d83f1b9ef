"""Schemas in a real registry. Needs its URL in CDCD_TEST_REGISTRY, and the extra `registry`.

Tried with Apicurio 3 (`http://127.0.0.1:8080/apis/ccompat/v7`), which the tests do not fetch.
"""

from __future__ import annotations

import io
import json
import os
import urllib.request
from typing import Any

import fastavro
import pytest
from support.stream import StreamFixture

URL = os.environ.get("CDCD_TEST_REGISTRY", "")

pytestmark = pytest.mark.skipif(not URL, reason="CDCD_TEST_REGISTRY names no schema registry")


def _get(path: str) -> Any:
    with urllib.request.urlopen(f"{URL}{path}", timeout=10) as answer:
        return json.load(answer)


def _put(path: str, document: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{URL}{path}", json.dumps(document).encode(), headers, method="PUT")
    urllib.request.urlopen(request, timeout=10).close()


def _decode(data: bytes) -> dict[str, Any]:
    """Decode a record in Confluent's wire format: a zero byte, the schema's id, Avro."""
    assert data[0] == 0
    schema = json.loads(_get(f"/schemas/ids/{int.from_bytes(data[1:5])}")["schema"])
    stream = io.BytesIO(data[5:])
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert not stream.read()
    assert isinstance(record, dict)
    return record


def test_every_version_of_a_table_is_a_version_of_its_subject(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon(avro={"registry_url": URL}).start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t ADD COLUMN w numeric(6,2)",
        "INSERT INTO t VALUES (2, 'b', 1.5)",
        "DELETE FROM t WHERE id = 1",
    )
    daemon.wait_until_confirmed()
    daemon.kill()
    daemon.start()  # asks for the same schemas again, and gets the same ids
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (3, 'c', 2.5)")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    topic = f"{stream.prefix}.public.t"
    messages = sorted(
        ((_decode(m.key()), _decode(m.value())) for m in stream.topics.raw(topic)),
        key=lambda pair: (pair[1]["source"]["commit_lsn"], pair[1]["source"]["seq"]),
    )
    assert [(key["id"], value["op"]) for key, value in messages] == [(1, "c"), (2, "c"), (1, "d"), (3, "c")]
    assert [set(value["after"] or value["before"]) for _, value in messages][:2] == [{"id", "v"}, {"id", "v", "w"}]
    assert _get(f"/subjects/{topic}-value/versions") == [1, 2]
    assert _get(f"/subjects/{topic}-key/versions") == [1]
    assert list(stream.topics.raw(f"{stream.prefix}.schemas")) == []


def test_a_schema_that_the_registry_refuses_ends_the_daemon_before_its_change_is_published(
    stream: StreamFixture,
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    daemon = stream.daemon(avro={"registry_url": URL}).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, 1)")
    daemon.wait_until_confirmed()
    topic = f"{stream.prefix}.public.t"
    _put(f"/config/{topic}-value", {"compatibility": "FULL"})
    stream.sql("ALTER TABLE t ALTER v TYPE text", "INSERT INTO t VALUES (2, 'two')")
    assert daemon.wait() == 1
    last = daemon.log.read_text().splitlines()[-1]
    assert " ERROR cdcd: " in last
    assert "incompatible" in last
    assert f"{topic}-value" in last
    assert len(list(stream.topics.raw(topic))) == 1
    _put(f"/config/{topic}-value", {"compatibility": "NONE"})
    daemon.start()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert len(list(stream.topics.raw(topic))) == 2


def test_a_registry_that_does_not_answer_is_waited_for(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon(avro={"registry_url": "http://127.0.0.1:9/none"}).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_for_log("the schema registry at http://127.0.0.1:9/none does not answer")
    daemon.wait_for_log("starting again")
    assert daemon.stop() == 0
