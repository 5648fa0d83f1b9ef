"""Asks for the columns of the published tables, and has them judged: by [[table]], the format and [outbox].

Before: `check` knows the tables. After: `check` passes the findings on.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdcd.config.format_choice import debezium_modes
from cdcd.config.settings import Settings
from cdcd.preflight import column_rules, flat_rows, lost_values, outbox
from cdcd.preflight.findings import Finding
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.source.catalog import Catalog
from cdcd.source.session import Session
from cdcd.source.table_columns import table_columns


def findings(settings: Settings, facts: PostgresFacts) -> Iterator[Finding]:
    """Ask the server for the columns, if there is anything to say about them."""
    rules, source, modes = settings.column_rules(), settings.source, debezium_modes(settings)
    is_own = settings.sink.format == "cdcd"
    if rules.rules or settings.outbox.is_on or not is_own:
        with Session(source.login, "cdcd check") as session:
            columns = table_columns(session, facts.tables)
            oids = {oid for table in columns for oid in table.type_oids}
            types = {} if is_own else Catalog(session, source.publication).types(oids)
        yield from column_rules.judge(rules, columns, binary=source.binary)
        if modes.rows is not None:
            yield from flat_rows.judge(modes.rows, columns, facts.identities)
        if not is_own:
            yield from lost_values.judge(modes, columns, types, rules)
        yield from outbox.judge(settings.outbox.rules, columns, rules)
