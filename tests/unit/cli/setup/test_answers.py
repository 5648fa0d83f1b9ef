"""What `cdcd init` takes from options and answers."""

from __future__ import annotations

import io
from argparse import Namespace
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from cdcd.cli.setup.answers import Dialogue, Login, answers, dsn_of_role, properties, properties_of_file
from cdcd.errors import SettingsError
from cdcd.source.server import ServerFacts
from cdcd.source.table_selection import CandidateTable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def login(dsn: str = "host=db dbname=shop user=dba", **more: object) -> Login:
    server = ServerFacts(180_000, "shop", "dba", {}, 0, 0)
    known = {"may_replicate": True, "is_superuser": True, "candidates": [], "is_slot_foreign": False}
    return Login(dsn=dsn, server=server, **{**known, **more})  # type: ignore[arg-type]


def options(**given: object) -> Namespace:
    names = ("brokers", "role", "tables", "prefix", "slot", "publication", "port")
    return Namespace(**{**dict.fromkeys(names), "kafka": [], "no_messages": False, "brokers": "k:9092", **given})


def silent() -> Dialogue:
    return Dialogue(io.StringIO(), io.StringIO())


def test_without_a_person_the_options_and_the_defaults_count() -> None:
    found = answers(options(), login(), silent())
    assert (found.role, found.tables, found.prefix, found.slot) == ("cdcd", ["public.*"], "shop", "cdcd")
    found = answers(options(role="r", tables=["a.b", "c.*"], prefix="p", slot="s"), login(), silent())
    assert (found.role, found.tables, found.prefix, found.slot) == ("r", ["a.b", "c.*"], "p", "s")


def test_another_slot_has_a_publication_of_its_own() -> None:
    assert answers(options(), login(), silent()).publication == "cdcd"
    assert answers(options(slot="orders"), login(), silent()).publication == "orders"
    assert answers(options(slot="orders", publication="all"), login(), silent()).publication == "all"


def test_without_a_person_what_nobody_gives_is_named() -> None:
    with pytest.raises(SettingsError, match="--brokers is not given"):
        answers(options(brokers=None), login(), silent())


def test_a_person_is_asked_and_an_empty_answer_takes_the_default() -> None:
    out = Terminal()
    person = Terminal("kafka:9092\n\npublic.orders public.refunds\n\nmine\n")
    found = answers(options(brokers=None), login(), Dialogue(person, out))
    assert (found.brokers, found.role, found.prefix, found.slot) == ("kafka:9092", "cdcd", "shop", "mine")
    assert found.tables == ["public.orders", "public.refunds"]
    assert "[public.*]" in out.getvalue()


def test_each_schema_with_tables_is_offered() -> None:
    tables = [CandidateTable(n, schema, "t", None, has_identity=True) for n, schema in enumerate(("sales", "app"))]
    assert answers(options(), login(candidates=tables), silent()).tables == ["app.*", "sales.*"]


def test_a_role_that_can_replicate_and_is_no_superuser_is_the_daemons() -> None:
    assert answers(options(), login(is_superuser=False), silent()).role == "dba"
    assert answers(options(), login(is_superuser=False, may_replicate=False), silent()).role == "cdcd"


def test_another_slot_is_offered_if_the_default_is_another_programs() -> None:
    assert answers(options(), login(is_slot_foreign=True), silent()).slot == "cdcd_shop"


@pytest.mark.parametrize(
    "dsn",
    [
        "host=db dbname=shop user=dba password=hunter2",
        "postgresql://dba:hunter2@db/shop?sslmode=require&sslpassword=hunter2",
        "host=db user=dba passfile=/root/hunter2 sslcert=/root/hunter2 sslkey=/root/hunter2",
    ],
)
def test_the_daemons_dsn_has_no_password_and_nothing_of_another_role(dsn: str) -> None:
    made = dsn_of_role(login(dsn), "cdcd")
    assert "hunter2" not in made
    found = conninfo_to_dict(made)
    assert (found["host"], found["dbname"], found["user"]) == ("db", "shop", "cdcd")


def test_a_role_that_stays_keeps_its_certificate() -> None:
    assert "sslcert=/etc/dba.crt" in dsn_of_role(login("host=db user=dba sslcert=/etc/dba.crt"), "dba")


def test_properties_are_read_from_words_and_from_a_file(tmp_path: Path) -> None:
    assert properties(["a=b", "c = d=e"], "--kafka") == {"a": "b", "c": "d=e"}
    with pytest.raises(SettingsError) as refused:
        properties(["hunter2"], "--kafka")
    assert "hunter2" not in str(refused.value)
    file = tmp_path / "admin.properties"
    file.write_text("# of the administrator\n\nsasl.username=admin\nsasl.password = p\n")
    assert properties_of_file(str(file)) == {"sasl.username": "admin", "sasl.password": "p"}
    with pytest.raises(SettingsError, match="cannot be read"):
        properties_of_file(str(tmp_path / "none"))
