"""Judges the settings [[table]] by the tables that are published: columns that are left out or masked, keys. Pure.

Before: `source.table_columns` has asked the server.
After: `check` passes the findings on; a start refuses what is an error, and logs what is a warning.

A rule with a star may match a table that anybody makes: what is wrong with that one is a warning, and the daemon parks
the table. A rule that names one table is the user's own word about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from cdcd.pgoutput.messages import Column, Relation
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.source.identifiers import identifier
from cdcd.source.table_columns import TableColumns
from cdcd.source.table_selection import qualified_name
from cdcd.terminal.text_format import plural
from cdcd.transaction.column_rules import ColumnRule, ColumnRules, unfit_key, unfit_key_hint

ABOUT: Final = "columns"
KEYS: Final = "keys"


def judge(rules: ColumnRules, tables: Sequence[TableColumns], *, binary: Literal["auto"] | bool) -> Iterator[Finding]:
    """The findings. `binary`: the setting source.binary."""
    if not rules.rules:
        return
    yield from _keys(rules, tables)
    yield from _partitions(rules, tables)
    bad, changed, text_only = False, 0, list[str]()
    for table in tables:
        masking = rules.masking(_relation(table))
        if masking is None:
            continue
        changed += 1
        keying = rules.keying(table.schema, table.name)
        for name in table.key if keying is None else keying.key:
            if why := masking.unfit_for_key(name):
                bad = True
                yield _unfit(rules, table, name, why)
        text_only += [f"{qualified_name(table.schema, table.name)}.{name}" for name in masking.text_only]
    for rule in rules.rules:
        for finding in _unknown(rule, tables):
            bad = True
            yield finding
    if text_only and binary is not False:
        bad = True
        columns = ", ".join(text_only[:5]) + (" and others" if len(text_only) > 5 else "")
        message = f"A mask of {columns} is made from text only, because of the type"
        if binary == "auto":
            yield warning(
                ABOUT,
                f"{message}: the stream runs in text mode, which is slower",
                'Leave it so, or use "null", a constant or exclude',
                code="stream-restarted",
            )
        else:
            yield error(ABOUT, message, 'Set source.binary = "auto"', code="binary-required")
    if changed and not bad:
        yield ok(ABOUT, f"{plural(changed, 'table')} with columns that are left out or masked")


def in_binary_mode(rules: ColumnRules, tables: Sequence[TableColumns]) -> bool:
    """Whether all masks of these tables can be made of values in their binary form."""
    maskings = [rules.masking(_relation(table)) for table in tables]
    return not any(masking.text_only for masking in maskings if masking is not None)


def _keys(rules: ColumnRules, tables: Sequence[TableColumns]) -> Iterator[Finding]:
    """The findings about the keys of [[table]]."""
    fit = 0
    for table in tables:
        rule = rules.keying(table.schema, table.name)
        if rule is None:
            continue
        finding = error if rule.pattern.names_one_table else warning
        name = qualified_name(table.schema, table.name)
        key = f"the key ({', '.join(rule.key)}) of [[table]]"
        if why := unfit_key(rule.key, table.identity, table.columns, table.flagged):
            hint = unfit_key_hint(table.schema, table.name, rule.key)
            if not set(rule.key) <= set(table.columns):
                hint = "Correct the names in [[table]]"
            yield finding(KEYS, f"The events of {name} cannot have {key}: {why}", hint, code="key-unfit")
        elif nullable := [column for column in rule.key if column in table.nullable]:
            message = f"In {name}, {', '.join(nullable)} of {key} may be null: events of such rows would have no key"
            altered = ", ".join(f"ALTER COLUMN {identifier(each)} SET NOT NULL" for each in nullable)
            hint = f"Run: ALTER TABLE {identifier(table.schema, table.name)} {altered}"
            yield finding(KEYS, message, hint, code="key-unfit")
        else:
            fit += 1
    if fit:
        yield ok(KEYS, f"{plural(fit, 'table')} with a key of [[table]]")


def _partitions(rules: ColumnRules, tables: Sequence[TableColumns]) -> Iterator[Finding]:
    """The tables whose key lacks the column that is to decide the partitions."""
    for table in tables:
        rule, keying = rules.partitioning(table.schema, table.name), rules.keying(table.schema, table.name)
        column = "" if rule is None or rule.partition_by is None else rule.partition_by.column
        key = table.key if keying is None else keying.key
        if column and column not in key:
            name = qualified_name(table.schema, table.name)
            yield warning(
                KEYS,
                f"The key of {name} ({', '.join(key) or 'it has none'}) lacks {column}, which is to decide the "
                "partition: the whole key decides it",
                f"Add {column} to the key in [[table]], or take partition_by out",
                code="partition-column-unfit",
            )


def _relation(table: TableColumns) -> Relation:
    columns = [
        Column(name in table.key, name, oid, -1) for name, oid in zip(table.columns, table.type_oids, strict=True)
    ]
    return Relation(0, 0, table.schema, table.name, "d", tuple(columns))


def _unfit(rules: ColumnRules, table: TableColumns, column: str, why: str) -> Finding:
    name = qualified_name(table.schema, table.name)
    deciding = [rule for rule in rules.of(table.schema, table.name) if rule is not None]
    finding = error if all(rule.pattern.names_one_table for rule in deciding) else warning
    return finding(
        ABOUT,
        f"The column {column} of {name} {why}, and it is part of the key of its events",
        'In [[table]], mask it by "hash", or not at all',
        code="key-masked",
    )


def _unknown(rule: ColumnRule, tables: Sequence[TableColumns]) -> Iterator[Finding]:
    """The columns that a rule names and none of its tables has."""
    matching = [table for table in tables if rule.pattern.matches(table.schema, table.name)]
    if not matching:
        yield warning(
            ABOUT,
            f"[[table]] with match = {rule.pattern.text!r} matches no published table",
            "To see the tables, run: cdcd schema",
            code="column-unknown",
        )
        return
    if unknown := sorted(rule.names - {column for table in matching for column in table.columns}):
        yield warning(
            ABOUT,
            f"[[table]] with match = {rule.pattern.text!r} names columns that none of its tables has: "
            f"{', '.join(unknown)}",
            "If a name is misspelt, the column that was meant is published as it is: correct the name",
            code="column-unknown",
        )
