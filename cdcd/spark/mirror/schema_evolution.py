"""How a mirrored table follows its source when columns change.

Before: `table_merge` knows the writers of a batch. After: `table_merge` decodes the batch into the columns found here.

The mirror follows new columns, and types that the format can widen in place. Two changes stop it with a hint: a type of
another kind, and a column that may have been renamed, or an attribute of a composite type. PostgreSQL does not report a
rename: the old column goes, and a new one comes. The new column would be null in all rows that exist.

The table keeps columns that have gone, and a person may add some of their own. So what the table has does not tell
which columns go now: the schema of the last events before does (`MirroredTable.columns`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from cdcd.avro.type_forms import kind_of
from cdcd.errors import RequestRejected
from cdcd.spark.mirror.merge_sql import DELETED
from cdcd.spark.mirror.per_table import KIND_PROPERTY, TableRules
from cdcd.spark.mirror.targets.target import Target, decimal_of
from cdcd.spark.reading.decoding import common_columns
from cdcd.spark.reading.types import Avro, common, ddl, from_ddl
from cdcd.spark.reading.writer_schemas import Writer
from cdcd.spark.state.collapse import COMMIT_LSN, COMMIT_TS, META, SEQ, UNREPRESENTABLE
from cdcd.spark.state.keyless_rows import DUPLICATE, HASH

OWN_COLUMNS: Final = frozenset((COMMIT_LSN, SEQ, COMMIT_TS, UNREPRESENTABLE, DELETED, HASH, DUPLICATE))
"""Names of columns that the mirror itself uses; the last two only in a table without a key."""


CHANGE_OP: Final = "_op"
CHANGE_UNCHANGED: Final = "_unchanged"
VALID_TO_LSN: Final = "_valid_to_lsn"
VALID_TO: Final = "_valid_to"
KIND_COLUMNS: Final = {
    "mirror": "",
    "changelog": f", {CHANGE_OP} string, {CHANGE_UNCHANGED} array<string>",
    "scd2": f", {VALID_TO_LSN} bigint, {VALID_TO} timestamp_ltz",
}
"""What a table of each kind has beside META: see `histories`."""


@dataclass(frozen=True)
class Evolution:
    """How a table must change before its batch is merged."""

    columns: list[dict[str, Any]]
    """The columns to decode the batch into; the table has all of them after the changes."""
    added: list[tuple[str, str]]
    """Name and Spark's type."""
    widened: list[tuple[str, str]]
    """Name and Spark's new type."""
    returned: list[str] = field(default_factory=list)
    """Columns that the table has, and the events before did not: its rows hold what they had long ago."""
    of_table: Mapping[str, str] = field(default_factory=dict)
    """All columns of the table after the changes: name -> Spark's type."""


@dataclass(frozen=True)
class Succession:
    """The schemas of a table's events, one after the other."""

    before: Sequence[str] | None
    """The columns of the last events before the batch; None if nobody knows them."""
    is_known: bool
    """Whether `before` is certain, and not only likely."""
    writers: Sequence[Writer]
    """The batch's, in the order of its events."""
    earlier: Writer | None = None
    """The schema that was new before the first of these; None if nobody knows one."""

    @property
    def last(self) -> list[str]:
        """The columns of the batch's last events."""
        return self.writers[-1].names


@dataclass(frozen=True)
class _Needed:
    """The changes that a table needs before a batch is written."""

    evolution: Evolution
    own: str
    """The mirror's own columns, as in CREATE TABLE."""
    added: list[tuple[str, str]]
    """Columns that it lacks, also the mirror's own: name and Spark's type."""
    adopts: bool
    """A person has made the table."""

    @property
    def is_fit(self) -> bool:
        """Whether the table, if it exists, needs no change."""
        return not (self.adopts or self.added or self.evolution.widened)


class TargetSchema:
    """Makes and alters the tables of a target, so that batches fit."""

    def __init__(self, target: Target, rules: TableRules) -> None:
        self._target = target
        self._rules = rules

    def fit(
        self,
        table: str,
        writers: Sequence[Writer],
        key: Sequence[str],
        succession: Succession | None = None,
        *,
        overwrites: bool = False,
    ) -> Evolution:
        """Make or alter the table for a batch of these writers. `overwrites`: the batch replaces all rows.

        Raises RequestRejected if the table cannot follow its source, see `evolve`.
        """
        target = self._target
        exists = target.exists(table)
        needed = self._needed(table, writers, key, succession, exists=exists, overwrites=overwrites)
        changed = needed.evolution
        if not exists:
            columns = [f"`{column['name']}` {ddl(column['type'])}" for column in changed.columns]
            target.create(table, f"{', '.join(columns)}, {needed.own}", self._rules.layout)
        else:
            if needed.adopts:
                target.adopt(table, self._rules.layout)
            if needed.added:
                target.add_columns(table, needed.added)
        if self._rules.layout.order_by and target.version(table) is None:
            target.order(table, self._rules.layout.order_by)
        for name, kind in changed.widened:
            target.widen(table, name, kind)
        return changed if exists and needed.is_fit else replace(changed, of_table=target.columns(table))

    def fit_for(
        self, table: str, writers: Sequence[Writer], key: Sequence[str], succession: Succession
    ) -> Evolution | None:
        """What `fit` returns, if the table, which exists, needs no change; else None."""
        try:
            needed = self._needed(table, writers, key, succession, exists=True)
        except RequestRejected:
            return None
        return needed.evolution if needed.is_fit else None

    def check_kind(self, table: str, present: Collection[str]) -> None:
        """Raise RequestRejected if the table, which has the columns `present`, is of another kind."""
        kind = self._rules.kind
        if COMMIT_LSN in present and (kind != "mirror" or CHANGE_OP in present or VALID_TO_LSN in present):
            found = self._target.property(table, KIND_PROPERTY) or "mirror"
            if found != kind:
                raise RequestRejected(
                    f'{table} is of kind = "{found}", and the settings say "{kind}"',
                    f'Say kind = "{found}" in [[tables]]. Or drop the table, and load it: `cdcd spark snapshot`',
                    code="mirror-schema-changed",
                )

    def _needed(
        self,
        table: str,
        writers: Sequence[Writer],
        key: Sequence[str],
        succession: Succession | None,
        *,
        exists: bool,
        overwrites: bool = False,
    ) -> _Needed:
        target = self._target
        of_kind = KIND_COLUMNS[self._rules.kind]
        own_columns = OWN_COLUMNS | {each.partition(" ")[0] for each in of_kind.split(", ") if each}
        own_names = own_columns - ({HASH, DUPLICATE} if key or self._rules.kind != "mirror" else set())
        named = {name.lower() for each in writers for name in each.names}
        present = target.columns(table) if exists else {}
        self.check_kind(table, present)
        own = META + of_kind
        if self._rules.kind == "mirror":
            own += f", {DELETED} boolean" if self._rules.deletes == "soft" else ""
            own += "" if key else f", {HASH} string, {DUPLICATE} bigint"
        existing = {n: kind for n, kind in present.items() if n not in own_columns or n in named - own_names}
        changed = evolve(target, table, existing, writers, succession, follow=self._rules.follow, overwrites=overwrites)
        taken = sorted(column["name"] for column in changed.columns if column["name"].lower() in own_names)
        if taken:
            raise RequestRejected(
                f"{table}: the source has a column {taken[0]}, a name that the mirror itself uses",
                "Rename the column in PostgreSQL, or leave it out by a column list in the publication",
                code="mirror-schema-changed",
            )
        kinds = [(name, kind) for name, _, kind in (each.partition(" ") for each in own.split(", "))]
        added = [*changed.added, *((name, kind) for name, kind in kinds if name not in present)]
        return _Needed(replace(changed, of_table=present), own, added, COMMIT_LSN not in present)


def evolve(
    target: Target,
    table: str,
    existing: Mapping[str, str],
    writers: Sequence[Writer],
    succession: Succession | None = None,
    *,
    follow: bool,
    overwrites: bool = False,
) -> Evolution:
    """How a table must change for the writers of a batch. `existing`: the source's columns in it, name -> Spark's type.

    With `follow`, a type that cannot be widened stays as it is, and values are cast to it; a renamed column counts as a
    new one. Without `follow`, both raise RequestRejected. A batch that `overwrites` all rows may rename columns.
    """
    wanted = common_columns(writers)
    old_names = {name.lower(): name for name in existing}
    existing = {name.lower(): kind for name, kind in existing.items()}
    added = [(column["name"], ddl(column["type"])) for column in wanted if column["name"].lower() not in existing]
    returned: list[str] = []
    if existing and not overwrites:
        succession = succession or Succession(None, False, writers)
        if not follow:
            _refuse_renames(target, table, old_names, existing, succession)
            _refuse_renamed_attributes(target, table, old_names, existing, succession)
        returned = _returned(existing, succession)
    columns: list[dict[str, Any]] = []
    widened: list[tuple[str, str]] = []
    for column in wanted:
        name, avro = column["name"], column["type"]
        old = existing.get(name.lower(), ddl(avro))
        if ddl(avro) != old:
            known = _parsed(old)
            both = "string" if known is None else common(known, avro)
            parts = None if known is None else _parts(target, name, known, both)
            if parts is not None:
                avro = both
                added += parts.added
                widened += parts.widened
            elif follow and _is_castable(avro) and (known is None or _is_castable(known)):
                avro = known or "string"
            else:
                raise RequestRejected(
                    f"{table}: column {name} is {old}, and PostgreSQL's is {ddl(avro)} now, to which {target.using} "
                    "cannot widen it",
                    "Drop the table, and load it again with `cdcd spark snapshot` (or have it copied: `cdcd snapshot`)"
                    + (', or set schema_changes = "follow" to cast to the old type' if _is_castable(avro) else ""),
                    code="mirror-schema-changed",
                )
        columns.append({"name": name, "type": avro})
    return Evolution(columns, added, widened, returned)


def _refuse_renames(
    target: Target, table: str, names: Mapping[str, str], existing: Mapping[str, str], succession: Succession
) -> None:
    """Raise RequestRejected if a column may have been renamed that the table has under its old name.

    `names`: the table's columns, by their names in small letters. `existing`: their types, likewise.
    """
    types = {name: existing[name] for name in _before(existing, succession) if name in existing}
    spelled = dict(names)
    met = {column["name"].lower() for writer in succession.writers for column in writer.columns}
    for writer in succession.writers:
        now = {column["name"].lower(): ddl(column["type"]) for column in writer.columns}
        spelled |= {column["name"].lower(): column["name"] for column in writer.columns}
        for gone in sorted(types.keys() - now.keys()):
            same = sorted(name for name in now.keys() - types.keys() if now[name] == types[gone])
            if not same:
                continue
            if gone in met:
                raise RequestRejected(
                    f"{table}: some events of this run have a column {spelled[gone]}, others {spelled[same[0]]}, of "
                    "the same type, instead: if it was renamed, each of them would be null in the rows of the other",
                    "Load the table again with `cdcd spark snapshot`. "
                    'If it was not renamed: set schema_changes = "follow" for one run',
                    code="mirror-schema-changed",
                )
            if same[0] in existing:  # as `_returned` says it: the table has both
                rename = "load the table again with `cdcd spark snapshot`"
            else:
                rename = "; ".join(target.rename_statements(table, names[gone], spelled[same[0]]))
            raise RequestRejected(
                f"{table}: column {names[gone]} went and {spelled[same[0]]} came, of the same type: if {names[gone]} "
                f"was renamed, {spelled[same[0]]} would be null in all rows that exist",
                f'If it was renamed: {rename}. If not: set schema_changes = "follow" for one run',
                code="mirror-schema-changed",
            )
        types = now


def _refuse_renamed_attributes(
    target: Target, table: str, names: Mapping[str, str], existing: Mapping[str, str], succession: Succession
) -> None:
    """Raise RequestRejected if an attribute of a composite type may have been renamed. Else as `_refuse_renames`."""
    writers = [succession.earlier, *succession.writers] if succession.earlier is not None else succession.writers
    for one, other in pairwise(writers):
        types = {column["name"].lower(): column["type"] for column in one.columns}
        for column in (each for each in other.columns if each["name"].lower() in types.keys() & existing.keys()):
            folded = column["name"].lower()
            before, now = (_attributes(avro, names[folded]) for avro in (types[folded], column["type"]))
            present = _attributes(_parsed(existing[folded]), names[folded])
            for gone in sorted(before.keys() - now.keys()):
                parent = gone.rpartition(".")[0]
                came = (path for path in sorted(now.keys() - before.keys()) if path.rpartition(".")[0] == parent)
                same = next((path for path in came if now[path] == before[gone]), None)
                if same is None or gone not in present or same in present:
                    continue
                name = same.rpartition(".")[2]
                rename = "; ".join(target.rename_statements(table, gone, name))
                raise RequestRejected(
                    f"{table}: the attribute {gone} went and {name} came, of the same type: if {gone} was renamed, "
                    f"{name} would be null in all rows that exist",
                    f'If it was renamed: {rename}. If not: set schema_changes = "follow" for one run',
                    code="mirror-schema-changed",
                )


def _attributes(avro: Avro | None, path: str) -> dict[str, str]:
    """The attributes inside a column, by names such as `column.attribute`: their types in Spark."""
    if isinstance(avro, dict) and avro["type"] == "array":
        return _attributes(avro["items"], f"{path}.element")
    if not isinstance(avro, dict) or avro["type"] != "record":
        return {}
    found: dict[str, str] = {}
    for each in avro["fields"]:
        inner = f"{path}.{each['name']}"
        found |= {inner: ddl(each["type"]), **_attributes(each["type"], inner)}
    return found


def _returned(existing: Mapping[str, str], succession: Succession) -> list[str]:
    """The columns that the table has from another time: they went and came again, or a person has added them."""
    before = _before(existing, succession)
    if not succession.is_known or before - existing.keys():  # the latter: a person has renamed one of them in the lake
        return []
    names = {column["name"].lower(): column["name"] for writer in succession.writers for column in writer.columns}
    return [name for folded, name in names.items() if folded in existing and folded not in before]


def _before(existing: Mapping[str, str], succession: Succession) -> set[str]:
    return {*existing} if succession.before is None else {name.lower() for name in succession.before}


def _parsed(kind: str) -> Avro | None:
    """Spark's type as Avro's; None for a type that can only stay as it is."""
    numbers = decimal_of(kind)
    if numbers is not None:
        return {"type": "bytes", "logicalType": "decimal", "precision": numbers[0], "scale": numbers[1]}
    found = re.fullmatch(r"(array<|map<string,|struct<)(.*)>", kind)
    if found is None:
        return from_ddl(kind)
    if found[1] == "struct<":
        fields = [each.partition(":") for each in _split(found[2])]
        types = {name: _parsed(of_field) for name, _, of_field in fields}
        if None in types.values():
            return None
        return {"type": "record", "fields": [{"name": name, "type": each} for name, each in types.items()]}
    part = _parsed(found[2])
    if part is None:
        return None
    return {"type": "array", "items": part} if found[1] == "array<" else {"type": "map", "values": part}


def _split(fields: str) -> list[str]:
    """The fields of a struct<...>, at the commas that are in no brackets."""
    found, depth = [""], 0
    for character in fields:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return found


@dataclass(frozen=True)
class _Parts:
    """What changes inside a column: names such as `column.field`, and their types."""

    added: list[tuple[str, str]] = field(default_factory=list)
    widened: list[tuple[str, str]] = field(default_factory=list)


def _parts(target: Target, name: str, old: Avro, new: Avro) -> _Parts | None:
    """How a column of type `old` becomes one of type `new`; None if the format cannot do that in place."""
    if ddl(old) == ddl(new):
        return _Parts()
    if isinstance(old, dict) and isinstance(new, dict) and old["type"] == new["type"] == "array":
        return _parts(target, f"{name}.element", old["items"], new["items"])
    if isinstance(old, dict) and isinstance(new, dict) and old["type"] == new["type"] == "record":
        types, made = {each["name"]: each["type"] for each in old["fields"]}, _Parts()
        for each in new["fields"]:
            path = f"{name}.{each['name']}"
            if each["name"] not in types:
                made.added.append((path, ddl(each["type"])))
            elif (inside := _parts(target, path, types[each["name"]], each["type"])) is None:
                return None
            else:
                made.added.extend(inside.added)
                made.widened.extend(inside.widened)
        return made
    return _Parts(widened=[(name, ddl(new))]) if target.widens(ddl(old), ddl(new)) else None


def _is_castable(avro: Avro) -> bool:
    """Whether Spark casts a type to another one: it has no parts."""
    return kind_of(avro) not in ("array", "map", "record")
