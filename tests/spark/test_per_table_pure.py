"""What `[[tables]]` says of a table: the first entry that says a thing counts, and what cannot be is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from cdcd.errors import SettingsError
from cdcd.spark.arguments import TableList
from cdcd.spark.mirror.per_table import Layout, PerTable, TableNames, TableOptions, TableRules
from cdcd.spark.mirror.wiring import MirrorOptions, make_mirror
from cdcd.spark.settings import load


def test_for_each_thing_the_first_entry_that_says_it_counts() -> None:
    per_table = PerTable(
        [
            TableOptions("public.orders", target="orders", partition_by=["day"]),
            TableOptions("public.*", deletes="soft", location="s3://lake/{schema}/{table}", partition_by=["other"]),
            TableOptions("*", deletes="hard", schema_changes="follow", properties={"a": "b"}),
        ]
    )
    assert per_table.target("public", "orders") == "orders"
    assert per_table.target("public", "Items") == "public_items"
    layout = Layout("s3://lake/public/orders", ["day"], properties={"a": "b"})
    assert per_table.rules("public", "orders") == TableRules("soft", True, layout)
    assert per_table.rules("sales", "orders") == TableRules("hard", True, Layout(properties={"a": "b"}))


@pytest.mark.parametrize(
    ("names", "wanted"),
    [("lower", "public_my_x20_orders"), ("escaped", "public_My_x20_Orders"), ("postgresql", "public_My Orders")],
)
def test_names_are_escaped_as_told(names: TableNames, wanted: str) -> None:
    per_table = PerTable(names=names)
    assert per_table.target("public", "My Orders") == wanted
    assert per_table.target("public", "${env:HOME}").lower() == "public__x24__x7b_env_x3a_home_x7d_"


def test_all_kinds_of_a_table_but_the_first_stand_behind_its_name_and_path() -> None:
    entries = [
        TableOptions("public.orders", kind=["scd2", "changelog"], target="o", location="/l/o/"),
        TableOptions("public.items", kind="changelog"),
        TableOptions("*", kind=["mirror", "scd2"]),
    ]
    per_table = PerTable(entries)
    assert per_table.further_kinds("public", "orders") == ("changelog",)
    assert per_table.further_kinds("public", "items") == ()
    assert per_table.further_kinds("other", "t") == ("scd2",)
    assert [per_table.target("public", "orders", kind) for kind in (None, "changelog")] == ["o", "o_changelog"]
    rules = [per_table.rules("public", "orders", kind) for kind in (None, "changelog")]
    assert [(each.kind, each.layout.location) for each in rules] == [("scd2", "/l/o/"), ("changelog", "/l/o_changelog")]
    assert per_table.rules("other", "t", "scd2").layout.location == ""


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"match": "a.t", "kind": "history"}, "there is no kind 'history'"),
        ({"match": "a.t", "kind": ["mirror", "history"]}, "there is no kind 'history'"),
        ({"match": "a.t", "kind": []}, "kind names none, or one twice"),
        ({"match": "a.t", "kind": ["scd2", "scd2"]}, "kind names none, or one twice"),
        ({"match": "a.t", "kind": ["scd2", "changelog"], "deletes": "soft"}, "deletes says nothing of a scd2"),
        ({"match": "public.*", "target": "t"}, "does not give each table its own. Write {table} into it"),
        ({"match": "*.t", "location": "/l/{table}"}, "does not give each table its own. Write {schema} into it"),
        ({"match": "a.t", "target": "{tabel}"}, "does not give each table its own"),
        ({"match": "a.t", "deletes": "never"}, 'there is no deletes \'never\'. Use "hard" or "soft"'),
        ({"match": "a.t", "partition_by": "day"}, "partition_by is no list"),
        ({"match": "a.t", "partitions": ["day"]}, "there is no 'partitions'"),
        ({"target": "t"}, "an entry has no match"),
        ({"match": ""}, "is no pattern of tables"),
        ({"match": "a.t", "order_by": ["id"]}, "Delta has no order_by"),
        ({"match": "a.t", "cluster_by": ["id"], "partition_by": ["id"]}, "both partition_by and cluster_by"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(entry: dict[str, Any], message: str) -> None:
    nothing: Any = None
    with pytest.raises(SettingsError) as refused:
        make_mirror(nothing, nothing, "*", "lake.shop", "delta", MirrorOptions(per_table=[entry]))
    assert message in str(refused.value)


def test_the_entries_of_the_shipped_file_load_without_their_marks(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "deploy" / "spark" / "mirror.toml").read_text()
    start = text.index("# [[tables]]")
    entries = text[start : text.index("[postgres]")]
    unmarked = re.sub(r"(?m)^# (?=\[\[tables|\w+ = )", "", entries)
    (tmp_path / "mirror.toml").write_text(text.replace(entries, unmarked))
    scratch, events = load(str(tmp_path / "mirror.toml")).tables
    assert scratch.exclude
    said = {"exclude"} | {name for name, value in events.model_dump().items() if value is not None}
    assert said == set(type(events).model_fields), "every setting"


def test_the_first_entry_that_says_exclude_counts_whatever_the_tables_of_the_mirror_are() -> None:
    entries: list[dict[str, Any]] = [
        {"match": "public.log_kept", "exclude": False},
        {"match": "public.log_*", "deletes": "soft"},
        {"match": "public.log_*", "exclude": True},
        {"match": "public.log_late", "exclude": False},
    ]
    wanted = TableList(("public.*", "!public.t"), tuple(TableOptions.of(each) for each in entries))
    selected = {name: wanted.matches("public", name) for name in ("log_kept", "log_a", "log_late", "t", "u")}
    assert selected == {"log_kept": True, "log_a": False, "log_late": False, "t": False, "u": True}
    assert not wanted.matches("other", "log_kept"), "an entry adds no table"
    assert str(wanted) == "public.*, !public.t, !public.log_*"
    assert wanted.idle([("public", "u"), ("public", "t")]) == ["!public.log_* (did you mean public.u?)"]


def test_the_file_says_it_by_tables(tmp_path: Path) -> None:
    (tmp_path / "mirror.toml").write_text(
        '[kafka]\nbootstrap_servers = "k:1"\n[mirror]\ncatalog = "lake.shop"\ntables = ["public.*"]\n'
        '[[tables]]\nmatch = "public.log_*"\nexclude = true\n[[tables]]\nmatch = "public.t"\ntarget = "t"\n'
        'kind = ["mirror", "scd2"]\n'
    )
    settings = load(str(tmp_path / "mirror.toml"))
    assert [settings.mirrored.matches("public", name) for name in ("t", "log_a")] == [True, False]
    assert TableOptions.of(settings.tables[1].model_dump()) == TableOptions(
        "public.t", target="t", kind=("mirror", "scd2")
    )
