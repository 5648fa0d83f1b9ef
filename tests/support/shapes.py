# ruff: noqa: E501  (a type and its values on a line)
"""Over two hundred tables, of every shape that PostgreSQL allows, each with expressions that make its rows.

After: `test_every_shape.py` writes into them at random. An expression makes a value from a number `{n}`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FAMILIES: dict[str, str] = {
    "smallint": "({n} % 30000)::smallint",
    "int": "{n}::int",
    "bigint": "{n}::bigint * 1000000007",
    "oid": "(4000000000 + {n})::oid",
    "xid8": "({n})::text::xid8",
    "real": "({n} / 7.0)::real",
    "float8": "CASE {n} % 4 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity'::float8 ELSE {n} / 7.0 END",
    "boolean": "{n} % 2 = 0",
    "numeric(12,2)": "CASE {n} % 5 WHEN 0 THEN 'NaN' ELSE {n} / 7.0 END",
    "numeric": "{n} / 7.0",
    "text": "repeat('é\"', {n} % 40)",
    "varchar(20)": "'v' || {n}",
    "char(9)": "lpad(({n})::text, 9, '0')",
    "name": "('n' || {n})::name",
    '"char"': "chr(65 + ({n} % 26)::int)::\"char\"",
    "bytea": "decode(md5(({n})::text), 'hex')",
    "uuid": "md5(({n})::text)::uuid",
    "json": "json_build_object('n', {n}, 'a', NULL)",
    "jsonb": "jsonb_build_array({n}, 'é', NULL)",
    "xml": "('<a n=\"' || {n} || '\"/>')::xml",
    "date": "CASE {n} % 5 WHEN 0 THEN 'infinity' WHEN 1 THEN date '4713-01-01 BC' ELSE date '2000-01-01' + ({n} % 9000)::int END",
    "time": "CASE {n} % 5 WHEN 0 THEN '24:00' ELSE time '00:00' + {n} * interval '1.5 s' END",
    "timetz": "(time '00:00' + {n} * interval '7 s')::timetz",
    "timestamp": "timestamp '1969-12-31' + {n} * interval '1 h 1 us'",
    "timestamptz": "CASE {n} % 5 WHEN 0 THEN '-infinity' ELSE timestamptz '2026-01-01' + {n} * interval '1 ms' END",
    "interval": "make_interval(months => ({n} % 30 - 15)::int, days => ({n} % 9)::int, secs => -{n} / 4.0)",
    "inet": "'10.0.0.0/8'::inet + {n}::bigint",
    "cidr": "'10.0.0.0/8'::cidr",
    "macaddr": "'08:00:2b:01:02:03'::macaddr",
    "bit(5)": "({n} % 32)::int::bit(5)",
    "varbit": "({n} % 32)::int::bit(5)::varbit",
    "tsvector": "to_tsvector('simple', 'b a ' || {n})",
    "pg_lsn": "'0/0'::pg_lsn + {n}::numeric",
    "int4range": "int4range({n}::int, CASE {n} % 3 WHEN 0 THEN NULL ELSE {n}::int + 5 END)",
    "tstzrange": "tstzrange(timestamptz '2026-01-01', timestamptz '2026-01-02' + {n} * interval '1 s', '(]')",
    "nummultirange": "nummultirange(numrange({n}, {n} + 0.5), numrange({n} + 7, NULL))",
    "int[]": "ARRAY[{n}, NULL]::int[]",
    "text[]": "ARRAY['a,b', NULL, '', ({n})::text]",
    "timestamptz[]": "ARRAY[timestamptz '2026-01-01' + {n} * interval '1 s']",
    "bytea[]": "ARRAY[decode(md5(({n})::text), 'hex')]",
    "int[][]": "ARRAY[[{n}, 2], [3, 4]]::int[]",
    "shapes.mood": "(enum_range(NULL::shapes.mood))[1 + {n} % 3]",
    "shapes.price": "({n} % 1000) / 7.0",
    "shapes.pair": "({n}, 'x \"' || {n}, NULL)::shapes.pair",
    "shapes.pair[]": "ARRAY[NULL, ({n}, '', '{{}}')::shapes.pair]",
    "shapes.hstore": "shapes.hstore('k', ({n})::text)",
    "shapes.citext": "'C' || {n}",
}  # fmt: skip

TEXT_ONLY: dict[str, str] = {
    "money": "({n} % 1000)::numeric::money",
    "point": "point({n}, 1)",
    "tsquery": "('a' || {n})::tsquery",
}
"""Types whose binary form cdcd does not know: a stream with them runs in text mode."""

SCHEMA = (
    "CREATE SCHEMA shapes",
    "CREATE EXTENSION hstore SCHEMA shapes",
    "CREATE EXTENSION citext SCHEMA shapes",
    "CREATE TYPE shapes.mood AS ENUM ('happy', 'sad', 'it''s \"odd\"')",
    "CREATE DOMAIN shapes.amount AS numeric(10,3)",
    "CREATE DOMAIN shapes.price AS shapes.amount CHECK (VALUE >= 0)",
    "CREATE TYPE shapes.pair AS (a int, b text, c int[])",
)

NAMES = (
    "a.b", "a-2eb", "a_x2e_b", "A.B", 'say "hi"', "it's", "two words", "two_words", "Two Words", "größe", "GRÖSSE", "漢字",
    "🐘", "_xe9_", "é", "1st", "$1", "%s", "{x}", "x" * 63, "é" * 31, "x" * 62 + "y", "select", "user", "progress",
    "schemas", "messages", "Envelope", "\\", "a/b", "..", "ORDERS", "Orders", "orders",
)  # fmt: skip
"""Names of tables and columns: odd ones, the longest, and names that differ only in case or in odd characters."""


@dataclass
class Table:
    """One published table: the expressions that make its rows, and the changes that it allows."""

    schema: str
    name: str
    columns: dict[str, str]
    """The expression for each column that is written."""
    key: str = ""
    """A column of the key, which an update may change to a new number."""
    is_updatable: bool = True
    """Whether the table has a replica identity."""
    is_alterable: bool = True
    """Whether DDL may change the columns. It may not if there is no key: a reader knows an old row by all its columns."""
    includes_partitions: bool = False
    """Whether the table's rows include its partitions' rows."""
    through: str = ""
    """The root's name in SQL, if this is a partition: rows are written to the root."""

    @property
    def sql(self) -> str:
        """The name in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def written(self) -> str:
        """The table that its rows are written to, in SQL."""
        return self.through or self.only

    @property
    def only(self) -> str:
        """The table's own rows, in SQL."""
        return self.sql if self.includes_partitions else f"ONLY {self.sql}"


@dataclass
class Made:
    """All tables, the statements that make them, and the names of those that are not published."""

    tables: list[Table] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    unpublished: list[str] = field(default_factory=list)

    def add(self, table: Table, *statements: str) -> None:
        """Add a table, and the statements that make it."""
        self.tables.append(table)
        self.statements += statements


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def make(version: int, via_root: bool, more: dict[str, str]) -> Made:
    """Make the tables for a server of that version. `more`: further types, with their expressions."""
    made = Made(statements=list(SCHEMA))
    _of_every_type(made, FAMILIES | more)
    _of_odd_names(made)
    _of_odd_shapes(made, version)
    _partitioned(made, via_root)
    made.unpublished = ["unlogged", "temporary", "seen", "looked"]
    made.statements += [
        "CREATE UNLOGGED TABLE shapes.unlogged (id int PRIMARY KEY)",
        "CREATE MATERIALIZED VIEW shapes.seen AS SELECT 1 AS a",
        "CREATE VIEW shapes.looked AS SELECT 1 AS a",
        "CREATE SEQUENCE shapes.numbers",
    ]
    return made


def _of_every_type(made: Made, families: dict[str, str]) -> None:
    """For each type, four tables: with a primary key, REPLICA IDENTITY FULL, an index as identity, no identity."""
    for number, (type_, value) in enumerate(families.items()):
        columns = {"id": "{n}", "v": value, "note": "'n' || {n}"}
        ddl = f"id bigint NOT NULL, v {type_}, note text"
        for kind in ("key", "full", "index", "none"):
            name = f"{kind}_{number}"
            table = Table("shapes", name, dict(columns), "id", kind != "none", kind in ("key", "index"))
            statements = [f"CREATE TABLE {table.sql} ({ddl})"]
            if kind == "key":
                statements.append(f"ALTER TABLE {table.sql} ADD PRIMARY KEY (id)")
            elif kind == "full":
                statements.append(f"ALTER TABLE {table.sql} REPLICA IDENTITY FULL")
            elif kind == "index":
                statements.append(f"CREATE UNIQUE INDEX by_id_{number} ON {table.sql} (id)")
                statements.append(f"ALTER TABLE {table.sql} REPLICA IDENTITY USING INDEX by_id_{number}")
            elif number % 2:
                statements.append(f"ALTER TABLE {table.sql} REPLICA IDENTITY NOTHING")
            made.add(table, *statements)


def _of_odd_names(made: Made) -> None:
    for number, name in enumerate(NAMES):
        schema = ("shapes", "a", "a.b", "A")[number % 4]
        other, another = NAMES[number - 1], NAMES[number - 2]
        table = Table(schema, name, {name: "{n}", other: "'o' || {n}", another: "{n}::bigint"}, name)
        made.add(
            table,
            f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}",
            f"CREATE TABLE {table.sql} ({quoted(name)} int PRIMARY KEY, {quoted(other)} text, {quoted(another)} bigint)",
        )


def _of_odd_shapes(made: Made, version: int) -> None:
    wide = {"c1": "{n}"} | {f"c{n}": "CASE {n} % 3 WHEN 0 THEN NULL ELSE {n} END" for n in range(2, 1601)}
    ddl = ", ".join(f"{name} int{' PRIMARY KEY' if name == 'c1' else ''}" for name in wide)
    made.add(Table("shapes", "wide", wide, "c1", is_alterable=False), f"CREATE TABLE shapes.wide ({ddl})")
    made.add(Table("shapes", "blank", {}, "", is_updatable=False), "CREATE TABLE shapes.blank ()")
    made.add(
        Table("shapes", "dropped", {"id": "{n}", "b": "'b' || {n}"}, "id"),
        "CREATE TABLE shapes.dropped (x int, id int PRIMARY KEY, y shapes.pair, b text, z int DEFAULT 5)",
        "ALTER TABLE shapes.dropped DROP x, DROP y, DROP z",
    )
    made.add(
        Table("shapes", "emptied", {}, "", is_updatable=False),
        "CREATE TABLE shapes.emptied (x int)",
        "ALTER TABLE shapes.emptied DROP x",
    )
    virtual = ", d text GENERATED ALWAYS AS (c || '!') VIRTUAL" if version >= 18 else ""
    made.add(
        Table("shapes", "generated", {"id": "{n}", "c": "'c' || {n}"}, "id"),
        f"CREATE TABLE shapes.generated (a int GENERATED ALWAYS AS (id * 2) STORED, id int PRIMARY KEY, c text{virtual})",
    )
    made.add(
        Table("shapes", "toasted", {"id": "{n}", "body": "repeat(md5(({n})::text), 300)", "v": "{n}"}, "id"),
        "CREATE TABLE shapes.toasted (id int PRIMARY KEY, body text, v int)",
        "ALTER TABLE shapes.toasted ALTER body SET STORAGE EXTERNAL",
    )
    made.add(
        Table("shapes", "toasted_key", {"id": "repeat(md5(({n})::text), 70) || {n}", "v": "{n}"}, is_alterable=False),
        "CREATE TABLE shapes.toasted_key (id text, v int)",
        "ALTER TABLE shapes.toasted_key ALTER id SET STORAGE EXTERNAL, REPLICA IDENTITY FULL",
    )
    made.add(
        Table("shapes", "identities", {"v": "{n}"}, ""),
        "CREATE TABLE shapes.identities (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int)",
    )
    made.add(
        Table("shapes", "parent", {"id": "{n}", "b": "'p' || {n}"}, "id", is_alterable=False),
        "CREATE TABLE shapes.parent (id int PRIMARY KEY, b text)",
    )
    made.add(
        Table("shapes", "child", {"id": "{n}", "b": "'c' || {n}", "more": "{n}"}, "id", is_alterable=False),
        "CREATE TABLE shapes.child (more int, PRIMARY KEY (id)) INHERITS (shapes.parent)",
    )
    made.add(
        Table("shapes", "grandchild", {"id": "{n}", "more": "{n}"}, is_alterable=False),
        "CREATE TABLE shapes.grandchild () INHERITS (shapes.child)",
        "ALTER TABLE shapes.grandchild REPLICA IDENTITY FULL",
    )
    made.add(
        Table("shapes", "referenced", {"id": "{n}"}, "id", is_alterable=False),
        "CREATE TABLE shapes.referenced (id int PRIMARY KEY)",
    )
    made.add(
        Table("shapes", "refers", {"id": "{n}", "r": "NULL"}, "id"),
        "CREATE TABLE shapes.refers (id int PRIMARY KEY, r int REFERENCES shapes.referenced)",
    )


def _partitioned(made: Made, via_root: bool) -> None:
    """Partitioned tables: by list, range and hash, one with two levels, and leaves with another order of columns."""
    roots = {
        "by_list": ("LIST (id)", ("FOR VALUES IN (1, 3, 5, 7, 9, 11)", "DEFAULT")),
        "by_range": ("RANGE (id)", ("FOR VALUES FROM (0) TO (700)", "FOR VALUES FROM (700) TO (MAXVALUE)")),
        "by_hash": (
            "HASH (id)",
            ("FOR VALUES WITH (MODULUS 2, REMAINDER 0)", "FOR VALUES WITH (MODULUS 2, REMAINDER 1)"),
        ),
        "nested": ("RANGE (id)", ("FOR VALUES FROM (0) TO (900)", "DEFAULT")),
    }
    columns = {"id": "{n}", "v": "{n}::bigint", "b": "'b' || {n}"}
    for name, (how, bounds) in roots.items():
        root = Table("shapes", name, dict(columns), "id", is_alterable=via_root, includes_partitions=True)
        made.statements.append(f"CREATE TABLE {root.sql} (id int PRIMARY KEY, v bigint, b text) PARTITION BY {how}")
        leaves = [
            Table("shapes", f"{name}_{n}", dict(columns), "id", is_alterable=False, through=root.sql)
            for n in range(len(bounds))
        ]
        for number, (leaf, bound) in enumerate(zip(leaves, bounds, strict=True)):
            if name == "nested" and number == 0:
                made.statements.append(
                    f"CREATE TABLE {leaf.sql} PARTITION OF {root.sql} {bound} PARTITION BY HASH (id)"
                )
                leaf.name = f"{name}_{number}_leaf"
                made.statements.append(
                    f"CREATE TABLE {leaf.sql} PARTITION OF shapes.{name}_{number} FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
                )
            elif number == 1:
                made.statements.append(f"CREATE TABLE {leaf.sql} (b text, x int, v bigint, id int NOT NULL)")
                made.statements.append(f"ALTER TABLE {leaf.sql} DROP x")
                made.statements.append(f"ALTER TABLE {root.sql} ATTACH PARTITION {leaf.sql} {bound}")
            else:
                made.statements.append(f"CREATE TABLE {leaf.sql} PARTITION OF {root.sql} {bound}")
        made.tables += [root] if via_root else leaves
        made.unpublished += [leaf.name for leaf in leaves] if via_root else [name]
