"""The table of requests to the daemon: an INSERT into it asks for something, so PostgreSQL's grants say who may ask.

Before: the daemon makes the table with the publication, or a person runs the SQL of `cdcd init`.
After: `transaction.change_router` takes its rows out of the stream; the commands snapshot and unpark insert them.
Source: PostgreSQL, "CREATE TABLE", "Privileges", "Logical Replication: Security".

Any role with CREATE on the database may make a table of this name first. So a table counts only if a trusted role owns
it: the owner of the publication, the daemon's own role, or a superuser. The stream publishes no table of this name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdcd.source.identifiers import identifier
from cdcd.source.query_runner import QueryRunner

SCHEMA: Final = "cdcd"
NAME: Final = "requests"
COLUMNS: Final = ("slot", "action", "table_schema", "table_name", "requested_by", "keys")
"""The columns that the daemon reads."""
_INSERTED: Final = ("slot", "action", "table_schema", "table_name")
"""The columns that a request fills in. The others have defaults that say who asked, and when."""
REPAIR_INSERTED: Final = (*_INSERTED, "keys")
"""The columns that a request for a repair fills in."""
KEYS_BYTES_MAX: Final = 60_000
"""The column `keys` of a request has no more (in UTF-8)."""

CREATE_SCHEMA: Final = "CREATE SCHEMA IF NOT EXISTS cdcd"
CREATE_TABLE: Final = """
    CREATE TABLE IF NOT EXISTS cdcd.requests (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        slot text NOT NULL,
        action text NOT NULL CHECK (action IN ('snapshot', 'unpark', 'discard', 'repair', 'pause', 'resume', 'stop')),
        table_schema text NOT NULL,
        table_name text NOT NULL,
        keys text,
        requested_by text NOT NULL DEFAULT session_user,
        requested_at timestamptz NOT NULL DEFAULT now()
    )
"""
# The row is in the WAL when the position is read. RETURNING needs no SELECT privilege for it.
INSERT: Final = """
    INSERT INTO cdcd.requests (slot, action, table_schema, table_name) VALUES (%s, %s, %s, %s)
    RETURNING pg_catalog.pg_current_wal_insert_lsn()::text
"""
INSERT_REPAIR: Final = """
    INSERT INTO cdcd.requests (slot, action, table_schema, table_name, keys) VALUES (%s, 'repair', %s, %s, %s)
    RETURNING pg_catalog.pg_current_wal_insert_lsn()::text
"""

_IS_TRUSTED: Final = """
    (c.relkind = 'r' AND (r.rolsuper OR r.rolname = current_user
        OR EXISTS (SELECT FROM pg_catalog.pg_publication p WHERE p.pubname = %s AND p.pubowner = c.relowner)))
"""
_TAKES: Final = f"""
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles r ON r.oid = c.relowner
    WHERE {_IS_TRUSTED} AND c.oid = %s
"""  # noqa: S608 - constants

# A publication may leave out rows by a filter, and columns by a list. PostgreSQL 14 has neither.
_STATE: Final = f"""
    SELECT r.rolname::text, {_IS_TRUSTED},
       pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND NOT EXISTS (
           SELECT FROM pg_catalog.unnest(%s::text[]) named (name) LEFT JOIN pg_catalog.pg_attribute a
               ON a.attrelid = c.oid AND a.attname = named.name AND NOT a.attisdropped
           WHERE a.attnum IS NULL OR NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'INSERT')),
       t.pubname IS NOT NULL,
       t.pubname IS NOT NULL AND pg_catalog.to_jsonb(t)->>'rowfilter' IS NULL
           AND coalesce(pg_catalog.to_jsonb(t)->'attnames' ?& %s::text[], true)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_roles r ON r.oid = c.relowner
    LEFT JOIN pg_catalog.pg_publication_tables t
        ON t.pubname = %s AND t.schemaname = n.nspname AND t.tablename = c.relname
    WHERE n.nspname = '{SCHEMA}' AND c.relname = '{NAME}'
"""  # noqa: S608 - constants
_PUBLICATION: Final = "SELECT puballtables, pubinsert FROM pg_catalog.pg_publication WHERE pubname = %s"
_ROLE: Final = "SELECT current_user"


@dataclass(frozen=True)
class RequestsTable:
    """The table of requests as it is now, for one publication and for the role that asks."""

    owner: str
    is_trusted: bool
    """A trusted role owns it, and it is an ordinary table."""
    may_insert: bool
    """The role may make requests."""
    is_published: bool
    is_published_whole: bool
    """The publication has all of its rows, and the columns of a request."""


@dataclass(frozen=True)
class RequestsProblem:
    """A reason why no request reaches the daemon. `hint` has the SQL that helps."""

    message: str
    hint: str


def is_requests(schema: str, name: str) -> bool:
    """Whether a relation has the name of the table of requests."""
    return name == NAME and schema == SCHEMA


def takes_requests(runner: QueryRunner, relation_oid: int, publication: str) -> bool:
    """Whether the rows of this table are requests: a trusted role owns it. False if it does not exist any more."""
    return bool(runner.rows(_TAKES, [publication, relation_oid]))


def requests_table(runner: QueryRunner, publication: str, *, of_repair: bool = False) -> RequestsTable | None:
    """The table of requests; None if there is none. `of_repair`: for requests that name keys."""
    columns = list(REPAIR_INSERTED if of_repair else _INSERTED)
    rows = runner.rows(_STATE, [publication, columns, columns, publication])
    return RequestsTable(*rows[0]) if rows else None


def requests_problem(runner: QueryRunner, publication: str, *, of_repair: bool = False) -> RequestsProblem | None:
    """The reason why no request of this role would reach the daemon; None if there is no such reason.

    `of_repair`: a request that names keys.
    """
    found = requests_table(runner, publication, of_repair=of_repair)
    rows = runner.rows(_PUBLICATION, [publication])
    has_all_tables, has_inserts = rows[0] if rows else (False, True)
    alter = f"ALTER PUBLICATION {identifier(publication)}"
    add = f"{alter} ADD TABLE cdcd.requests"
    if found is None:
        statements = [CREATE_SCHEMA, " ".join(CREATE_TABLE.split()), *([] if has_all_tables else [add])]
        return RequestsProblem(
            "There is no table cdcd.requests, through which the daemon takes requests",
            f"As the owner of the publication, run: {'; '.join(statements)}",
        )
    if not found.is_trusted:
        return RequestsProblem(
            f"The daemon takes no requests from the table cdcd.requests, because {found.owner} owns it",
            "As a superuser, look at the table, and run: ALTER TABLE cdcd.requests RENAME TO requests_of_another; "
            "then run the SQL that cdcd init writes",
        )
    if not has_inserts:
        set_publish = f"{alter} SET (publish = 'insert, update, delete, truncate')"
        return RequestsProblem(
            f"The publication {publication} leaves out INSERTs, and so requests", f"As its owner, run: {set_publish}"
        )
    if not found.is_published:
        return RequestsProblem(
            f"The publication {publication} does not have the table cdcd.requests", f"As its owner, run: {add}"
        )
    if not found.is_published_whole:
        return RequestsProblem(
            f"The publication {publication} leaves out rows or columns of the table cdcd.requests",
            f"As its owner, run: {alter} DROP TABLE cdcd.requests; {add}",
        )
    if not found.may_insert:
        [(name,)] = runner.rows(_ROLE)
        role = identifier(name)
        return RequestsProblem(
            f"The role {name} may not insert into the table cdcd.requests",
            f"As {found.owner}, run: GRANT USAGE ON SCHEMA cdcd TO {role}; "
            f"GRANT INSERT ({', '.join(REPAIR_INSERTED if of_repair else _INSERTED)}) ON cdcd.requests TO {role}",
        )
    return None
