"""What holds for some tables of a mirror: names, layout, and how they follow their sources. Pure.

Before: the entries of `[[tables]]`, or of `MirrorOptions.per_table`. After: `planner` names the targets, `table_merge`
asks how a table is made and merged.

For each thing that entries say, the first one counts that matches a table and says it, as in the daemon's `[[table]]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, Self, TypeAlias

from cdcd.avro.avro_names import avro_name
from cdcd.errors import SettingsError
from cdcd.source.table_selection import TablePattern
from cdcd.spark.arguments import TableList
from cdcd.spark.mirror.merge_sql import Deletes

SchemaChanges: TypeAlias = Literal["stop", "follow"]
Kind: TypeAlias = Literal["mirror", "changelog", "scd2"]
TableNames: TypeAlias = Literal["lower", "escaped", "postgresql"]

TARGET: Final = "{schema}_{table}"
"""What a table is called in the lake."""

KIND_PROPERTY: Final = "cdcd.kind"
"""The property of a table that says its kind."""

_ALLOWED: Final = {
    "kind": ("mirror", "changelog", "scd2"),
    "deletes": ("hard", "soft"),
    "schema_changes": ("stop", "follow"),
}
_FIELD: Final = re.compile(r"\{(\w*)\}")
_CODE: Final = "mirror-settings-invalid"


@dataclass(frozen=True)
class Layout:
    """How a table that the mirror makes lies in the lake."""

    location: str = ""
    """Its path; empty: where the catalog puts it."""
    partition_by: Sequence[str] = ()
    """Columns; of Iceberg also their transforms, as in days(created_at)."""
    cluster_by: Sequence[str] = ()
    """Columns of Delta's liquid clustering."""
    order_by: Sequence[str] = ()
    """Columns by which Iceberg sorts what is written, also with ASC or DESC."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """More TBLPROPERTIES."""


@dataclass(frozen=True)
class TableOptions:
    """One entry. What is None is not said."""

    match: str
    """The tables, as schema.table; `*` stands for any characters."""
    exclude: bool | None = None
    """Leave the tables out, whatever other patterns say."""
    target: str | None = None
    """Their name in the lake, with {schema} and {table}."""
    kind: Kind | Sequence[Kind] | None = None
    """Today's rows ("mirror"), every event ("changelog"), or every version of each row ("scd2"): see `histories`.

    Several make as many tables: `_` and the kind stand behind the names (and paths) of all but the first.
    """
    deletes: Deletes | None = None
    schema_changes: SchemaChanges | None = None
    location: str | None = None
    """Their path, with {schema} and {table}."""
    partition_by: Sequence[str] | None = None
    cluster_by: Sequence[str] | None = None
    order_by: Sequence[str] | None = None
    properties: Mapping[str, str] | None = None

    @property
    def layout(self) -> Layout:
        """What the entry says of it, before {schema} and {table} stand for names."""
        return Layout(
            self.location or "",
            self.partition_by or (),
            self.cluster_by or (),
            self.order_by or (),
            self.properties or {},
        )

    @classmethod
    def of(cls, given: Mapping[str, Any] | Self) -> Self:
        """An entry from a mapping. Raises SettingsError if it has another field, or a value that none allows."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise SettingsError(f"per_table: {given!r} is no entry", 'Write {"match": "public.t", ...}', code=_CODE)
        known = [each.name for each in fields(cls)]
        if strange := sorted(given.keys() - set(known)):
            raise SettingsError(f"per_table: there is no {strange[0]!r}", f"Use {', '.join(known)}", code=_CODE)
        if "match" not in given:
            raise SettingsError("per_table: an entry has no match", 'Say which tables: match = "public.*"', code=_CODE)
        return cls(**given)

    def __post_init__(self) -> None:
        """Check the values. Raises SettingsError."""
        TableList.of(self.match)  # checks it
        kinds = _as_kinds(() if self.kind is None else self.kind)
        for name, allowed in _ALLOWED.items():
            for value in kinds if name == "kind" else (getattr(self, name),):
                if value not in (None, *allowed):
                    shown = " or ".join(f'"{each}"' for each in allowed)
                    raise SettingsError(f"{self.match}: there is no {name} {value!r}", f"Use {shown}", code=_CODE)
        if self.kind is not None and len(set(kinds)) != max(1, len(kinds)):
            raise SettingsError(f"{self.match}: kind names none, or one twice", 'Write kind = "mirror"', code=_CODE)
        if kinds and "mirror" not in kinds and self.deletes is not None:
            raise SettingsError(
                f"{self.match}: deletes says nothing of a {kinds[0]}", "Leave it out: deletes are kept", code=_CODE
            )
        for name in "partition_by", "cluster_by", "order_by":
            if isinstance(getattr(self, name), str):
                raise SettingsError(f"{self.match}: {name} is no list", f'Write {name} = ["..."]', code=_CODE)
        for name in "target", "location":
            value = getattr(self, name)
            if value is None:
                continue
            missing = [
                part
                for part, is_wild in zip(("{schema}", "{table}"), TablePattern(self.match).wild_parts, strict=True)
                if is_wild and part not in value
            ]
            if not value or missing or set(_FIELD.findall(value)) - {"schema", "table"}:
                raise SettingsError(
                    f"{self.match}: {name} = {value!r} does not give each table its own",
                    f"Write {' and '.join(missing or ['{schema}', '{table}'])} into it",
                    code=_CODE,
                )


def _as_kinds(said: Kind | Sequence[Kind]) -> tuple[Kind, ...]:
    return (said,) if isinstance(said, str) else tuple(said)


@dataclass(frozen=True)
class TableRules:
    """What holds for one table."""

    deletes: Deletes = "hard"
    follow: bool = False
    """Follow changes of columns that the format cannot follow, see `schema_evolution`."""
    layout: Layout = field(default_factory=Layout)
    kind: Kind = "mirror"


class PerTable:
    """Some entries, as an answer for each table."""

    def __init__(
        self,
        entries: Sequence[TableOptions] = (),
        deletes: Deletes = "hard",
        schema_changes: SchemaChanges = "stop",
        *,
        names: TableNames = "lower",
    ) -> None:
        """`deletes` and `schema_changes` hold where no entry says it.

        `names`: what {schema} and {table} stand for: small letters, digits and _, with escapes for all else ("lower");
        the same with capitals ("escaped"); PostgreSQL's own names.
        """
        self._entries = tuple(entries)
        self._deletes: Deletes = deletes
        self._schema_changes: SchemaChanges = schema_changes
        self._names: TableNames = names

    def further_kinds(self, schema: str, table: str) -> tuple[Kind, ...]:
        """The kinds of a table but for its first one."""
        return self._kinds(schema, table)[1:]

    def target(self, schema: str, table: str, further: Kind | None = None) -> str:
        """The name of a table in the lake, without catalog and schema. `further`: of this kind, not of its first."""
        return self._filled(self._said("target", schema, table, TARGET), schema, table, further)

    def rules(self, schema: str, table: str, further: Kind | None = None) -> TableRules:
        """How the table is made, and follows its source. `further`: as for `target`."""
        kind = further or self._kinds(schema, table)[0]
        layout = Layout(
            self._filled(self._said("location", schema, table, ""), schema, table, further),
            self._said("partition_by", schema, table, ()),
            self._said("cluster_by", schema, table, ()),
            self._said("order_by", schema, table, ()),
            self._said("properties", schema, table, {}) | ({} if kind == "mirror" else {KIND_PROPERTY: kind}),
        )
        changes = self._said("schema_changes", schema, table, self._schema_changes)
        return TableRules(self._said("deletes", schema, table, self._deletes), changes == "follow", layout, kind)

    def _said(self, name: str, schema: str, table: str, default: Any) -> Any:
        found = (
            getattr(each, name)
            for each in self._entries
            if getattr(each, name) is not None and TablePattern(each.match).matches(schema, table)
        )
        return next(found, default)

    def _kinds(self, schema: str, table: str) -> tuple[Kind, ...]:
        return _as_kinds(self._said("kind", schema, table, "mirror"))

    def _filled(self, pattern: str, schema: str, table: str, further: Kind | None) -> str:
        names = {"schema": schema, "table": table}
        # Spark puts the value of a variable for `${variable}` in each statement, also between backquotes.
        if self._names != "postgresql" or "${" in schema + table:
            names = {part: avro_name(name) for part, name in names.items()}
        if self._names == "lower":
            names = {part: name.lower() for part, name in names.items()}
        filled = _FIELD.sub(lambda found: names[found[1]], pattern)
        return f"{filled.rstrip('/')}_{further}" if filled and further else filled
