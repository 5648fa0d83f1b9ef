from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.json_server import JsonHandler, JsonServer
from support.registry import Registry

from cdcd.avro.registry_requests import RegistryRequests
from cdcd.preflight.findings import Finding, Level
from cdcd.preflight.registry import TABLES_SHOWN, WantedSchema, judge

TEXT = '{"type":"record","name":"A","fields":[]}'


def wanted(*tables: str) -> list[WantedSchema]:
    return [WantedSchema(("public", table), f"p.public.{table}-value", TEXT) for table in tables]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as registry:
        yield registry


def judged(registry: JsonServer, *tables: str, may_register: bool = True) -> list[Finding]:
    return list(judge(RegistryRequests(registry.url, {}), wanted(*tables), may_register=may_register))


def test_a_registry_that_takes_what_it_lacks_is_fine_and_nothing_is_changed(registry: Registry) -> None:
    registry.register("p.public.t-value", TEXT)
    [finding] = judged(registry, "t", "u")
    assert (finding.level, finding.message) == (Level.OK, "The schema registry answers, and has 1 of 2 schemas")
    assert set(registry.subjects) == {"p.public.t-value"}
    assert [each.message for each in judged(registry)] == ["The schema registry answers"]


def test_missing_schemas_that_may_not_be_registered_are_one_finding_with_the_command(registry: Registry) -> None:
    [finding] = judged(registry, "t", "u", may_register=False)
    assert finding.level is Level.ERROR
    assert finding.message == "The registry lacks schemas of public.t, public.u, and avro.register is false"
    assert finding.hint == "Register them, as a user that may: cdcd schema --register public.t public.u"
    [finding] = judged(registry, *(f"t{number}" for number in range(TABLES_SHOWN + 3)), may_register=False)
    assert "and 3 more, and avro.register is false" in finding.message
    assert finding.hint.endswith("cdcd schema --register")


def test_a_user_that_may_not_register_is_found_before_a_schema_is_needed(registry: Registry) -> None:
    registry.register("p.public.t-value", TEXT)
    registry.takes_schemas = False
    assert [each.level for each in judged(registry, "t")] == [Level.OK]
    [finding] = judged(registry, "t", "u")
    assert finding.message == "The registry lacks schemas of public.u, and this user may not register them"


def test_a_registry_in_read_only_mode_is_found(registry: Registry) -> None:
    registry.mode = "READONLY"
    [finding] = judged(registry, "t")
    assert finding.message == "The registry lacks schemas of public.t, and the registry is in read-only mode"


def test_a_schema_that_would_be_refused_is_found(registry: Registry) -> None:
    registry.register("p.public.t-value", '"long"')
    registry.frozen.add("p.public.t-value")
    [finding] = judged(registry, "t", "u")
    assert (
        "would refuse the schema of public.t as incompatible with earlier ones in p.public.t-value" in finding.message
    )
    assert finding.hint.startswith("Allow it: curl -X PUT ")
    assert len(registry.subjects["p.public.t-value"]) == 1


def test_tables_of_one_subject_whose_columns_differ_are_named(registry: Registry) -> None:
    asked = RegistryRequests(registry.url, {})
    one, same, other = (WantedSchema(("public", name), "p.all-value", TEXT) for name in "abc")
    assert [each.level for each in judge(asked, [one, same], may_register=True)] == [Level.OK]
    different = replace(other, text=TEXT.replace('"A"', '"B"'))
    [found, answers] = judge(asked, [one, same, different], may_register=True)
    assert (found.level, found.code, answers.level) == (Level.WARNING, "schema-incompatible", Level.OK)
    assert "public.a and public.c share a topic, and their columns differ" in found.message
    assert found.hint.endswith("/config/p.all-value")
    truncate = replace(one, text=different.text)  # a table of cdcd's own format has two schemas in a subject
    assert [each.level for each in judge(asked, [one, truncate], may_register=True)] == [Level.OK]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ((401, {"error_code": 40101, "message": "who are you"}), "does not accept the credentials: who are you"),
        ((503, "no backend"), "does not answer"),
        ((404, "not here"), "No schema registry answers at http"),
    ],
)
def test_a_registry_that_is_not_there_or_knows_nobody_is_one_finding(
    registry: Registry, failure: tuple[int, object], said: str
) -> None:
    registry.failure = failure
    [finding] = judged(registry, "t", "u")
    assert finding.level is Level.ERROR
    assert said in finding.message
    assert finding.hint


def test_a_user_that_may_only_look_up_is_enough_where_all_is_there() -> None:
    class Handler(JsonHandler):
        def post(self, body: bytes) -> tuple[int, object]:
            return 200, {"subject": "s", "id": 1, "version": 1, "schema": TEXT}

        def get(self) -> tuple[int, object]:
            return 403, {"error_code": 40301, "message": "not you"}

    with JsonServer(Handler) as registry:
        assert [each.level for each in judged(registry, "t")] == [Level.OK]
