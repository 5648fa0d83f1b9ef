"""The comparison of a table with its topic, as PostgreSQL and Kafka would answer it.

Before: `snapshots` has what a table holds at an LSN, the broker what is committed.
After: `cdcd.daemon.gap_repairs`. The class here plays `cdcd.daemon.table_comparison` for it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from sim.fake_postgres import Table
from sim.heaps import Fold
from sim.snapshots import SimSnapshot

from cdcd.daemon.table_comparison import Compared
from cdcd.progress.repair_records import RepairKeys, divided

if TYPE_CHECKING:
    from sim.replica import Life
    from sim.world import World


class SimTableComparison:
    """Plays `TableComparison`: goes on a little whenever its result is asked for."""

    def __init__(self, world: World, life: Life, table: tuple[str, str]) -> None:
        self._world = world
        self._life = life
        self._table = table
        self._steps = self._compare()
        self.waits = False

    @property
    def found(self) -> Compared | None:
        if self._world.server.up and self._world.rng.random() < 0.5:
            try:
                next(self._steps)
            except StopIteration as end:
                result: Compared = end.value
                return result
        return None

    def close(self) -> None:
        self._steps.close()

    def _compare(self) -> Generator[None, None, Compared]:
        world, server = self._world, self._world.server
        writing = set(server.running) | server.waiting()
        while writing := writing & (server.running | server.waiting()):
            yield
        snapshot = SimSnapshot(world, self._life)
        snapshot.closed = True
        tables = [each for each in snapshot.tables.values() if (each.schema, each.name) == self._table]
        if not tables or tables[0].oid in world.database.unpublished:
            return Compared(refused="it is not published any more")
        self.waits = True
        while not self._is_reached(snapshot.lsn):
            yield
        self.waits = False
        return self._judge(snapshot, tables[0])

    def _is_reached(self, lsn: int) -> bool:
        last = self._world.checker.last
        incomplete = {(each.schema, each.table) for each in last.incomplete} if last is not None else set()
        return last is not None and last.lsn >= lsn and self._table not in incomplete

    def _judge(self, snapshot: SimSnapshot, table: Table) -> Compared:
        fold, keys = self._topic(f"p.{table.schema}.{table.name}", snapshot.lsn)
        columns = [name for name, _ in table.columns]
        rows = snapshot.file(table).fold.rows.values()
        if not table.key or keys - {table.key}:
            return Compared(refused="it has no key, or another one")
        here = {tuple(str(row[name]) for name in table.key): {c: row.get(c) for c in columns} for row in rows}
        there = {tuple(map(str, key)): {c: row.get(c) for c in columns} for key, row in fold.rows.items()}  # type: ignore[arg-type]
        differ = sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key))
        found: list[RepairKeys] = list(divided(table.key, differ))
        self._world.checker.snapshots.repairs.found(self._table, snapshot.lsn, found)
        return Compared(snapshot.lsn, found, len(here), len(differ))

    def _topic(self, topic: str, before_lsn: int) -> tuple[Fold, set[tuple[str, ...]]]:
        """The rows of the committed events before an LSN, and the columns of their keys since the last truncate."""
        world, events = self._world, dict[tuple[int, int], tuple[bytes | None, dict[str, Any]]]()
        for transaction in world.broker.committed:
            for placed in transaction.records:
                if placed.topic == topic:
                    value = world.checker._decode(placed.value)
                    position = value["source"]["commit_lsn"], value["source"]["seq"]
                    events[position] = placed.key, value
        fold, keys = Fold(), set[tuple[str, ...]]()
        for position, (data, value) in sorted(events.items()):
            if position[0] >= before_lsn:
                continue
            key = None if data is None else world.checker._decode(data)
            fold.apply(value["op"], key, value["before"], value["after"], value["unchanged"])
            if value["op"] == "t":
                keys.clear()
            else:
                keys.add(() if key is None else tuple(key))
        return fold, keys
