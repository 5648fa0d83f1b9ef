"""A table as it is now under its name: which table it is, what publishes it, and which files have its rows. Pure.

Before: `published_incarnations` asks the catalog; a Relation message says the OID that a name had at its moment.
After: `progress.snapshot_records` keeps the incarnation whose rows a topic has; the daemon compares the next one.
Source: PostgreSQL, "System Catalogs": pg_class (`relfilenode`), pg_inherits, pg_attribute, pg_publication_rel.

A topic has the rows of one incarnation. Some changes of a table are no rows in the WAL, or rows that this topic does
not get. `contradiction` finds their traces:

- Another table has the name: it has another OID.
- The table was taken out of the publication and came back: another entry publishes it.
- ALTER TABLE wrote all rows again: the table has another file, and the catalog has other rows for its columns. (VACUUM
  FULL and CLUSTER make another file, too, and leave the columns alone. TRUNCATE is an event.)
- A partition left its root, or was attached with its rows. A TRUNCATE of a partition is no event of its root. It makes
  another file, and so does VACUUM FULL of a partition: the two look the same.

A partition that was made by CREATE TABLE ... PARTITION OF is empty at first, and all its rows are events of the root.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Leaf:
    """A partition with rows."""

    oid: int
    file_node: int
    attached: int
    """Checksum of the rows of pg_inherits between it and the root: another one if it was attached again."""


@dataclass(frozen=True)
class Incarnation:
    """One table under its name. What is empty is not known."""

    oid: int
    """0: the table that had the name has another name now, or another topic."""
    published_by: tuple[int, ...] = ()
    """The OIDs of what publishes it: rows of pg_publication_rel or pg_publication_namespace, or the publication's."""
    file_node: int = 0
    """The table's file; 0: it is partitioned, or it is not known."""
    columns: int = 0
    """Checksum of the versions of its columns in the catalog."""
    leaves: tuple[Leaf, ...] | None = None
    """The partitions of a root, by OID; None: it is not partitioned, or it is not known."""
    made_as_partitions: frozenset[int] = field(default=frozenset(), compare=False)
    """The leaves that cannot have had rows before they were partitions of the root. Nothing records it."""

    def contradiction(self, seen: Incarnation) -> str:
        """Why a topic with the rows of this one lacks rows of `seen`, or has others; empty if nothing tells so."""
        if self.oid != seen.oid:
            return "another table has its name now"
        if self.published_by and seen.published_by and not set(self.published_by) & set(seen.published_by):
            return "the publication was without it for a time"
        if self.file_node and seen.file_node and self.file_node != seen.file_node and self.columns != seen.columns:
            return "ALTER TABLE has written all its rows again"
        if self.leaves is None or seen.leaves is None:
            return ""
        left = set(self.leaves) - set(seen.leaves)
        if left:
            return f"its partition with the OID {min(left).oid} was dropped, detached, truncated or rewritten"
        attached = {leaf.oid for leaf in set(seen.leaves) - set(self.leaves)} - seen.made_as_partitions
        if attached:
            return f"the table with the OID {min(attached)} was attached to it as a partition"
        return ""

    def document(self) -> dict[str, object]:
        """Return it as JSON has it. A leaf whose file node is its OID, as at first, is a pair."""
        found: dict[str, object] = {"oid": self.oid}
        if self.published_by:
            found["published_by"] = list(self.published_by)
        if self.file_node:
            found |= {"file_node": self.file_node, "columns": self.columns}
        if self.leaves is not None:
            found["leaves"] = [
                [leaf.oid, leaf.attached, *([] if leaf.file_node == leaf.oid else [leaf.file_node])]
                for leaf in self.leaves
            ]
        return found


def parse_incarnation(document: object) -> Incarnation:
    """Read what `Incarnation.document` has made. Raises ValueError, TypeError or KeyError if it is malformed."""
    if not isinstance(document, dict):
        raise TypeError(f"an incarnation is a JSON object, not {type(document).__name__}")
    leaves = document.get("leaves")
    return Incarnation(
        oid=int(document["oid"]),
        published_by=tuple(map(int, document.get("published_by", ()))),
        file_node=int(document.get("file_node", 0)),
        columns=int(document.get("columns", 0)),
        leaves=None if leaves is None else tuple(_leaf(*map(int, each)) for each in leaves),
    )


def _leaf(oid: int, attached: int, file_node: int = 0) -> Leaf:
    return Leaf(oid, file_node or oid, attached)
