"""The SQL that makes the daemon's role with the least rights, its publication, and the table of requests. Pure.

Before: the settings name role, publication and tables; `cdcd init` has looked which tables there are.
After: `cdcd init` writes or runs the SQL. deploy/postgres/setup.sql is the same for the defaults: a test holds both
equal.
Source: PostgreSQL, "CREATE ROLE", "CREATE PUBLICATION", "ALTER DEFAULT PRIVILEGES", "Logical Replication: Security".

Each statement may run again: it makes what is missing, and takes nothing away. The order counts: a published table
without a replica identity refuses updates, so the publication comes after the look for such tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from shlex import quote
from textwrap import dedent, indent, wrap
from typing import Final

from cdcd.source import identifiers
from cdcd.source.published_tables import LOGGED, SCHEMAS_VERSION
from cdcd.source.replica_identity import HAS_IDENTITY
from cdcd.source.requests_table import CREATE_SCHEMA, CREATE_TABLE, NAME, REPAIR_INSERTED, SCHEMA
from cdcd.source.table_selection import CandidateTable, TablePattern, select_candidates

CONNECTIONS_MAX: Final = 20
"""CONNECTION LIMIT of the role: a daemon, its workers for snapshots, a second daemon, and commands."""

_ATTRIBUTES: Final = (
    f"LOGIN REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS NOINHERIT CONNECTION LIMIT {CONNECTIONS_MAX}"
)
RDS_REPLICATION: Final = "rds_replication"
"""The role of Amazon RDS and Aurora whose members may replicate."""
_OF_USERS: Final = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
_IS_SUPERUSER: Final = "(SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)"


# ruff: noqa: S608 - names are quoted


def identifier(*names: str) -> str:
    """As `identifiers.identifier`, on one line: the text is indented afterwards."""
    return ".".join(_on_one_line(identifiers.identifier(name)) for name in names)


def literal(value: str) -> str:
    """As `identifiers.literal`, on one line."""
    return _on_one_line(identifiers.literal(value))


def _on_one_line(quoted: str) -> str:
    """A quoted name or string; with its line breaks escaped, if there are any, and every backslash then."""
    if "\n" not in quoted and "\r" not in quoted:
        return quoted
    escaped = quoted.replace("\\", "\\\\").replace("\n", "\\000A").replace("\r", "\\000D")
    return f"U&{escaped}"


@dataclass(frozen=True)
class Selection:
    """The tables to publish: whole schemas with the tables to come, single tables, or everything."""

    schemas: Sequence[str] = ()
    tables: Sequence[tuple[str, str]] = ()
    """Schema and name of each table that is not in one of `schemas`."""
    is_everything: bool = False

    @property
    def condition(self) -> str:
        """An SQL condition on the rows `n` of pg_namespace and `c` of pg_class."""
        if self.is_everything:
            return _OF_USERS
        parts = [f"n.nspname IN ({', '.join(map(literal, self.schemas))})"] if self.schemas else []
        return " OR ".join([*parts, *([self.is_named] if self.tables else [])]) or "false"

    @property
    def is_named(self) -> str:
        """An SQL condition: the table is one of the single tables."""
        names = (f"({literal(schema)}, {literal(name)})" for schema, name in self.tables)
        return f"(n.nspname, c.relname) IN ({', '.join(names)})" if self.tables else "false"


def selection(patterns: Sequence[str], candidates: Iterable[CandidateTable]) -> Selection:
    """The tables that the patterns of `source.tables` select now; a pattern `schema.*` also selects those to come."""
    parsed = [TablePattern.parse(text) for text in patterns]
    if any(pattern.is_everything for pattern in parsed):
        return Selection(is_everything=True)
    schemas = sorted({pattern.whole_schema for pattern in parsed} - {None}, key=str)
    selected = select_candidates(parsed, candidates)
    return Selection(
        tuple(str(schema) for schema in schemas),
        tuple((table.schema, table.name) for table in selected if table.schema not in schemas),
    )


@dataclass(frozen=True)
class Step:
    """One thing that the SQL makes."""

    name: str
    """What it makes, in a word or two."""
    who: str
    """Who may run it: a sentence, without its full stop."""
    about: str
    """Why it is needed."""
    statements: Sequence[str]


def steps(role: str, publication: str, tables: Selection) -> list[Step]:
    """Everything that `role` needs, in the order in which it has to be made."""
    return [
        Step(
            "role",
            "Run it as a superuser; from PostgreSQL 16 on, as a role with CREATEROLE that has REPLICATION itself",
            "The role has no password: set one (\\password), and allow it in pg_hba.conf. REPLICATION lets it read "
            "every published row, also rows that row-level security hides, and drop slots of other roles.",
            [_role(role)],
        ),
        Step(
            "replica identities",
            "Everybody may run it",
            "PostgreSQL refuses updates and deletes of a published table without a replica identity. So this stops "
            "before the publication if there is such a table.",
            [_identities(tables)],
        ),
        Step(
            "publication",
            "Run it as a superuser, or as the owner of the tables with CREATE on the database",
            _joining(tables),
            [_publication(publication, tables)],
        ),
        Step(
            "grants for the snapshot",
            "Run it as a superuser, or as the owner of the tables",
            f"A snapshot reads the tables with SELECT. {_later(tables)}"
            "cdcd refuses to copy a table with row-level security, unless the role has BYPASSRLS.",
            _privileges(role, tables),
        ),
        Step(
            "table of requests",
            "Run it as a superuser, or as the owner of the publication",
            "The table through which people ask the daemon: cdcd snapshot, cdcd unpark, cdcd verify --repair. Whoever "
            "may INSERT into it may ask.",
            _requests(role, publication, is_everything=tables.is_everything),
        ),
    ]


def _joining(tables: Selection) -> str:
    """What becomes of tables that are made later."""
    if not (tables.schemas or tables.is_everything):
        return "It lists the tables: a table that is made later is not in it."
    listed = " Those outside of whole schemas are listed." if tables.tables and not tables.is_everything else ""
    where = "New tables" if tables.is_everything else f"New tables of {', '.join(map(identifier, tables.schemas))}"
    return (
        f"{where} join by themselves if a superuser runs this on PostgreSQL 15 or later; otherwise run it again after "
        f"new tables.{listed}"
    )


def _later(tables: Selection) -> str:
    """What the default privileges are for, if there are any."""
    if not (tables.schemas or tables.is_everything):
        return ""
    return "The default privileges are for tables that the owners of today's tables make later. "


_HEAD: Final = """\
-- What cdcd needs of PostgreSQL (14 to 18): a role with the least rights, the publication, and the table of requests.
--
--   psql -v ON_ERROR_STOP=1 -d {database} -f {file}
--
-- Run it as a superuser. Without one, somebody who may make roles runs part 1, then the owner of the tables all of it.
-- It may run again: it makes what is missing, and takes nothing away.

"""


def script(made: Iterable[Step], database: str, file: str) -> str:
    """The SQL of the steps, with its comments, for psql. `file`: the name that it will have."""
    parts = [_HEAD.format(database=quote(database), file=quote(file))]
    for number, step in enumerate(made, 1):
        parts += [
            f"-- {number}. {step.name.capitalize()}\n",
            *(f"-- {line}\n" for line in wrap(f"{step.who}. {step.about}", 115)),
        ]
        parts += [f"{statement};\n" for statement in step.statements]
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def _role(role: str) -> str:
    name, quoted = literal(role), identifier(role)
    lacks = f"rolname = {name} AND NOT (rolcanlogin AND rolreplication)"
    # On Amazon RDS nobody may give REPLICATION away: the membership in a role stands for it.
    return _block(f"""\
IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {literal(RDS_REPLICATION)}) THEN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {name}) THEN
        CREATE ROLE {quoted} LOGIN CONNECTION LIMIT {CONNECTIONS_MAX};
    END IF;
    GRANT {RDS_REPLICATION} TO {quoted};
ELSIF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {name}) THEN
    CREATE ROLE {quoted} {_ATTRIBUTES};
ELSIF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE {lacks}) THEN
    ALTER ROLE {quoted} LOGIN REPLICATION;
END IF;
IF NOT pg_catalog.has_database_privilege({name}, pg_catalog.current_database(), 'CONNECT') THEN
    EXECUTE {_format(f"GRANT CONNECT ON DATABASE %I TO {quoted}", "pg_catalog.current_database()")};
END IF;
""")


def _from(tables: Selection) -> str:
    """Tables that can be published. A partition is published with its root, unless it is named itself."""
    named = f"(NOT c.relispartition OR {tables.is_named})" if tables.tables else "NOT c.relispartition"
    return f"""\
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND {named} AND ({tables.condition})
  AND NOT (n.nspname = '{SCHEMA}' AND c.relname = '{NAME}')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                  AND d.objid = c.oid AND d.deptype = 'e')"""


def _with_partitions(tables: Selection) -> str:
    """The same tables as `l`, in the schema `m`, and each partition that holds rows."""
    return f"""\
FROM (
{indent(f"SELECT c.oid {_from(tables)}", "    ")}
) given
CROSS JOIN LATERAL (
    SELECT given.oid UNION SELECT t.relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree(given.oid) t WHERE t.isleaf
) part (oid)
JOIN pg_catalog.pg_class l ON l.oid = part.oid JOIN pg_catalog.pg_namespace m ON m.oid = l.relnamespace"""


def _identities(tables: Selection) -> str:
    has_identity = dedent(HAS_IDENTITY.format(of="l")).strip()
    return _block(
        f"""\
SELECT pg_catalog.string_agg(
    pg_catalog.format('ALTER TABLE %I.%I REPLICA IDENTITY FULL', m.nspname, l.relname), '; ') INTO statements
{_with_partitions(tables)}
WHERE {LOGGED.format(of="l")} AND NOT {has_identity};
IF statements IS NOT NULL THEN
    RAISE EXCEPTION 'tables without a replica identity cannot be updated once they are published'
        USING HINT = 'Give each a primary key, or run: ' || statements;
END IF;
""",
        "statements text",
    )


def _publication(publication: str, tables: Selection) -> str:
    name, quoted = literal(publication), identifier(publication)
    exists = f"EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = {name})"
    whole = ""
    if tables.is_everything or tables.schemas:
        target = "FOR ALL TABLES"
        condition = f"NOT {exists}\n    AND {_IS_SUPERUSER}"
        if not tables.is_everything:
            target = f"FOR TABLES IN SCHEMA {', '.join(map(identifier, tables.schemas))}"
            condition += f"\n    AND pg_catalog.current_setting('server_version_num')::int >= {SCHEMAS_VERSION}"
        # EXECUTE: PostgreSQL 14 could not parse the statement itself.
        whole = f"IF {condition} THEN\n    EXECUTE {literal(f'CREATE PUBLICATION {quoted} {target}')};\nEND IF;\n"
    return _block(
        f"""\
{whole}SELECT pg_catalog.string_agg(pg_catalog.format(
    CASE WHEN c.relkind = 'r' AND c.relhassubclass THEN 'ONLY %I.%I' ELSE '%I.%I' END, n.nspname, c.relname),
    ', ' ORDER BY n.nspname, c.relname) INTO missing
{_from(tables)}
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
                  WHERE p.pubname = {name} AND r.prrelid = c.oid)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_tables p WHERE p.pubname = {name}
                  AND (p.schemaname = n.nspname AND p.tablename = c.relname OR EXISTS (
                      SELECT FROM pg_catalog.pg_partition_tree(c.oid) t
                      WHERE t.relid = pg_catalog.format('%I.%I', p.schemaname, p.tablename)::pg_catalog.regclass)));
IF NOT {exists} THEN
    IF missing IS NULL THEN
        RAISE EXCEPTION 'there are no tables to publish' USING HINT = 'Make the tables first';
    END IF;
    EXECUTE {literal(f"CREATE PUBLICATION {quoted} FOR TABLE ")} || missing;
ELSIF missing IS NOT NULL THEN
    EXECUTE {literal(f"ALTER PUBLICATION {quoted} ADD TABLE ")} || missing;
END IF;
""",
        "missing text",
    )


def _privileges(role: str, tables: Selection) -> list[str]:
    quoted, schemas = identifier(role), ", ".join(map(identifier, tables.schemas))
    found = []
    if tables.tables:
        of_each = f"SELECT DISTINCT m.nspname, l.relname {_with_partitions(Selection(tables=tables.tables))}"
        grants = (_format(f"GRANT USAGE ON SCHEMA %I TO {quoted}", "one.nspname"),
                  _format(f"GRANT SELECT ON %I.%I TO {quoted}", "one.nspname", "one.relname"))  # fmt: skip
        found.append(_loop(of_each, *grants))
    if schemas:
        found.append(f"GRANT USAGE ON SCHEMA {schemas} TO {quoted}")
        found.append(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schemas} TO {quoted}")
        found.append(_for_new_tables(tables, f" IN SCHEMA {schemas} GRANT SELECT ON TABLES TO {quoted}"))
    if tables.is_everything:
        of_each = f"SELECT n.nspname FROM pg_catalog.pg_namespace n WHERE {_OF_USERS}"
        grants = (_format(f"GRANT USAGE ON SCHEMA %I TO {quoted}", "one.nspname"),
                  _format(f"GRANT SELECT ON ALL TABLES IN SCHEMA %I TO {quoted}", "one.nspname"))  # fmt: skip
        found.append(_loop(of_each, *grants))
        kinds = (f" GRANT {right} TO {quoted}" for right in ("USAGE ON SCHEMAS", "SELECT ON TABLES"))
        found.append(_for_new_tables(tables, *kinds))
    return found


def _for_new_tables(tables: Selection, *grants: str) -> str:
    """Default privileges for whoever owns a table there, and for the role that runs this."""
    whole = Selection(tables.schemas, is_everything=tables.is_everything)
    owners = f"""\
SELECT pg_catalog.pg_get_userbyid(c.relowner) AS owner {_from(whole)}
  AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
UNION SELECT current_user"""
    return _loop(owners, *(_format(f"ALTER DEFAULT PRIVILEGES FOR ROLE %I{grant}", "one.owner") for grant in grants))


def _loop(query: str, *statements: str) -> str:
    """A block that runs the statements for each row `one` of a query."""
    body = "".join(f"    EXECUTE {statement};\n" for statement in statements)
    return _block(f"FOR one IN\n{indent(query, '    ')}\nLOOP\n{body}END LOOP;\n", "one record")


def _format(statement: str, *values: str) -> str:
    """A call of format(). Each `%I` of `statement` takes one of `values`, which are SQL."""
    escaped = statement.replace("%", "%%").replace("%%I", "%I")
    return f"pg_catalog.format({literal(escaped)}, {', '.join(values)})"


def _requests(role: str, publication: str, *, is_everything: bool) -> list[str]:
    quoted = identifier(role)
    columns = ", ".join(REPAIR_INSERTED)
    made = [
        CREATE_SCHEMA,
        CREATE_TABLE.strip().replace("\n    ", "\n"),
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO {quoted}",
        # Not the other columns: so a request names the role that has made it.
        f"GRANT INSERT ({columns}) ON {SCHEMA}.{NAME} TO {quoted}",
    ]
    if not is_everything:
        made.append(
            _block(f"""\
IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication_tables WHERE pubname = {literal(publication)}
               AND schemaname = '{SCHEMA}' AND tablename = '{NAME}') THEN
    ALTER PUBLICATION {identifier(publication)} ADD TABLE {SCHEMA}.{NAME};
END IF;
""")
        )
    return made


def _block(body: str, declared: str = "") -> str:
    """An anonymous block. Whoever makes a table chooses its name: so the block's quotes occur nowhere inside."""
    tag = next(tag for number in count() if (tag := f"$cdcd{number or ''}$") not in body)
    declare = f"DECLARE\n    {declared};\n" if declared else ""
    return f"DO {tag}\n{declare}BEGIN\n{indent(body, '    ')}END {tag}"
