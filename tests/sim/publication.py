"""A publication that lists tables, and that the daemon has been given: it alters it as the settings ask.

Before: a scene gives the world such a publication. After: `replica` answers the daemon's questions and runs its
statements; the catalog has an entry for each listed table, with an OID of its own (`snapshots`).

Nobody writes to a table while it is not published: what was not sent is in no ledger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cdcd.source.publication_contents import (
    EVERYTHING,
    FIRST_WORDS,
    FoundPublication,
    ListedTable,
    PublicationContents,
    listed_tables,
    operations_of,
)
from cdcd.source.table_selection import CandidateTable

if TYPE_CHECKING:
    from sim.sql import Database


class GivenPublication:
    """The publication of one world."""

    def __init__(self, database: Database, slot: str) -> None:
        self._database = database
        self.operations = EVERYTHING
        self.comment = f"{FIRST_WORDS}: {json.dumps({'slot': slot})}"
        self._next_oid = 1_000
        self.entries: dict[int, int] = {}
        """The OID of the entry of each listed table, by the table's."""
        self._list(database.server.tables)

    def candidates(self) -> list[CandidateTable]:
        """Every table that can be published."""
        tables = self._database.server.tables.values()
        return [CandidateTable(each.oid, each.schema, each.name, None, has_identity=True) for each in tables]

    def found(self) -> FoundPublication:
        """The publication as it is now."""
        tables = self._database.server.tables
        listed = [ListedTable(oid, tables[oid].schema, tables[oid].name) for oid in self.entries]
        contents = PublicationContents(self.operations, via_root=False, tables=frozenset(self.entries))
        return FoundPublication(contents, self.comment, is_owned=True, listed=listed, existing=tables.keys())

    def alter(self, statements: Sequence[str]) -> None:
        """Run ALTER PUBLICATION and COMMENT, in one transaction."""
        oids = {listed_tables([each]): each.oid for each in self.candidates()}
        for statement in statements:
            if words := re.fullmatch(r"ALTER PUBLICATION \S+ (ADD|DROP) TABLE (.+)", statement):
                named = [oids[f"TABLE {name}"] for name in words[2].split(", ")]
                if words[1] == "ADD":
                    self._list(named)
                else:
                    for oid in named:
                        del self.entries[oid]
            elif words := re.fullmatch(r"ALTER PUBLICATION \S+ SET \(publish = '(.+)'\)", statement):
                self.operations = operations_of(words[1].split(", "))
            else:
                comment = re.fullmatch(r"COMMENT ON PUBLICATION \S+ IS '(.+)'", statement)
                assert comment is not None, statement
                self.comment = comment[1]
        self._database.unpublished = self._database.server.tables.keys() - self.entries.keys()

    def _list(self, oids: Iterable[int]) -> None:
        for oid in oids:
            assert oid not in self.entries, f"{oid} is listed already"
            self._next_oid += 1
            self.entries[oid] = self._next_oid
