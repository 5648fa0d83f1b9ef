"""Resolves Relation messages: looks up the types of the columns and the key of the events.

Before: `pgoutput.messages.Relation`, which says names, type OIDs, typmods and the replica identity.
After: `avro` builds schemas and encoders from a `ResolvedRelation`.
Source: PostgreSQL, "Logical Replication Message Formats", Relation; `pg_class.relreplident`.

The stream tells its own time: what a Relation message says held at that moment. The catalog answers as of now, which
may be later. So it fills gaps, and never overrides. A dropped type is known by its name only, and its values are text:
the name alone does not tell an extension's type from a user's own.

The key, by the settings: the columns that `[[table]]` names, if they are columns of the replica identity. Else, by
replica identity:

- DEFAULT or an index: the columns that the message flags. If the publication hides some columns of the index, the
  flagged ones are no key, because several rows could share it. The catalog tells the hidden columns.
- FULL (all columns are flagged) or NOTHING (none are): the primary key, which no message names. The catalog's answer
  holds for transactions that commit behind the position at which it was given. Before, the columns of both keys
  together are the key: of the answer and of the table's last events. So no two rows share a key, whenever the table got
  the other one. (The answer may also be too early: another session sees a commit only after the stream has it.) Nothing
  tells of a third key between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from cdcd.errors import Unpublishable
from cdcd.pgoutput import messages
from cdcd.source.pg_types import DOMAIN, UNKNOWN, Attribute, PgType
from cdcd.source.table_selection import qualified_name, shell_word
from cdcd.transaction.column_masks import RelationMasking
from cdcd.transaction.column_rules import BY_KEY, NO_RULES, ColumnRules, PartitionChoice, unfit_key, unfit_key_hint

IDENTITY_DEFAULT: Final = "d"
IDENTITY_FULL: Final = "f"
IDENTITY_INDEX: Final = "i"
IDENTITY_NOTHING: Final = "n"

ADDED_SIZE_MAX: Final = 50_000
"""Characters of the names and the missing values of a table's added columns."""


class ResolvedColumn:
    """One published column, in the order of the stream's tuples."""

    def __init__(
        self,
        name: str,
        pgtype: PgType,
        typmod: int,
        in_key: bool,
        missing_value: str | None = None,
        is_masked: bool = False,
        now: Attribute | None = None,
    ) -> None:
        """`now`: the column as the catalog has it; None: not known, or masked."""
        self.name = name
        self.pgtype = pgtype
        self.typmod = typmod
        self.in_key = in_key
        """Whether it is part of the key of this table's events."""
        self.missing_value = missing_value
        """What the rows hold that are older than the column, as PostgreSQL's text; None: null, or not known."""
        self.is_masked = is_masked
        """Its values are masked: type and missing value are those of the masked values. COPY has to give its text."""
        self.is_required = now is not None and now.is_required
        """NOT NULL, as the catalog has it."""
        self.default = "" if now is None else now.default
        """The expression of DEFAULT, as the catalog has it; empty: none."""

    def __reduce__(self) -> tuple[Any, ...]:
        """What `pickle` needs: compiled, the attributes lie in no dictionary."""
        return ResolvedColumn, (self.name, self.pgtype, self.typmod, self.in_key, self.missing_value, self.is_masked)


class ResolvedRelation:
    """One table in one of its versions."""

    def __init__(
        self,
        oid: int,
        schema: str,
        name: str,
        identity: str,
        columns: list[ResolvedColumn],
        is_provisional: bool = False,
        added: Mapping[str, Attribute] | None = None,
        masking: RelationMasking | None = None,
    ) -> None:
        self.oid = oid
        self.schema = schema
        self.name = name
        self.identity = identity
        self.columns = columns
        self.is_provisional = is_provisional
        """The key holds only for transactions that commit before `Relations.settles_lsn`."""
        self.added = dict(added or {})
        """By name, the columns that were added with a default which is known."""
        self.masking = masking
        """What is done with its frames before a consumer gets them: `masked_changes`. None: nothing."""
        self.has_lost_key = False
        """A mask has taken its key. It is parked, and its events are to be discarded: old rows may name nothing."""
        self.shared_topic = ""
        """Its topic, if other tables may have it, too: its keys and events name it then. Empty: none may."""
        self.partition_by = BY_KEY
        """What decides the partition of an event. A column is one of the key."""
        self.has_chosen_key = False
        """Its key is that of the settings: it need not be a part of the primary key."""
        self.key_order = self.key
        """The names of the key's columns, in the order of the index where it is known, else in that of the table."""

    def order_key(self, index: tuple[str, ...]) -> None:
        """Take the order of the columns of the index that gives the key."""
        first = [name for name in index if name in self.key]
        self.key_order = (*first, *(name for name in self.key if name not in first))

    def __reduce__(self) -> tuple[Any, ...]:
        """As `ResolvedColumn.__reduce__`. The masks are not handed on: they have a secret."""
        values = self.oid, self.schema, self.name, self.identity, self.columns, self.is_provisional, self.added
        return ResolvedRelation, values, {"shared_topic": self.shared_topic, "partition_by": self.partition_by}

    @property
    def types(self) -> list[tuple[PgType, int]]:
        """The type and the typmod of each column."""
        return [(column.pgtype, column.typmod) for column in self.columns]

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's columns, in the order of the table; empty if its events have no key."""
        return tuple(column.name for column in self.columns if column.in_key)

    @property
    def has_key(self) -> bool:
        """Whether its events have keys."""
        return any(column.in_key for column in self.columns)

    @property
    def leaves_out(self) -> bool:
        """Whether its readers do not see all columns."""
        return self.masking is not None and self.masking.leaves_out

    @property
    def has_masked_key(self) -> bool:
        """Whether a column of the key is masked: PostgreSQL cannot find a row by such a key."""
        return any(column.in_key and column.is_masked for column in self.columns)


MESSAGES: Final = ResolvedRelation(
    0,
    "",
    "messages",
    "n",
    [
        ResolvedColumn("transactional", PgType(16, "pg_catalog", "bool"), -1, False),
        ResolvedColumn("prefix", PgType(25, "pg_catalog", "text"), -1, False),
        ResolvedColumn("content", PgType(17, "pg_catalog", "bytea"), -1, False),
    ],
)
"""Logical decoding messages as the rows of a relation. The schema "" is that of no table."""


class TypeCatalog(Protocol):
    """The server's catalog of types and keys; `source.catalog` implements it."""

    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        """The types with these OIDs, without the types that no longer exist."""

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        """Names of the primary key's columns; empty without a primary key, or if the table no longer exists."""

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        """Names of the columns of the index that REPLICA IDENTITY names; empty without such an index."""

    def columns(self, relation_oid: int) -> Mapping[str, bool]:
        """The table's columns, and whether the publication has each of them; empty if the table no longer exists."""

    def attributes(self, relation_oid: int) -> Mapping[str, Attribute]:
        """The columns of the table, by name; empty if it no longer exists."""

    def expect(self, relation_oids: Iterable[int]) -> None:
        """Ask for these tables now, all at once: the next questions are about them."""

    def position(self) -> int:
        """A WAL position behind every commit that an earlier answer may have shown."""

    def takes_requests(self, relation_oid: int) -> bool:
        """Whether a trusted role owns this table: its rows are requests to the daemon."""

    def forget(self) -> None:
        """Ask the server again from now on: something was altered."""


class Relations:
    """Turns Relation messages into ResolvedRelations."""

    def __init__(
        self,
        catalog: TypeCatalog,
        last_key: Callable[[str, str, int], tuple[str, ...]] | None = None,
        parked: Collection[tuple[str, str]] = (),
        last_added: Callable[[str, str, int], Mapping[str, Attribute]] | None = None,
        rules: ColumnRules = NO_RULES,
    ) -> None:
        """`last_key` takes the schema, the name and the OID of a table. It returns the key columns of the table's last
        events in Kafka; empty if they are not known, or if the events are of another table. `last_added` likewise: the
        columns of these events that were added with a default.

        `parked`: the tables whose events do not go to their own topics; for them an unknown key is no key. `rules`: the
        columns that are left out or masked, and the keys.
        """
        self._catalog = catalog
        self.rules = rules
        self._published_key = last_key
        self._published_added = last_added
        self._keys: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}
        """Keys of events that may not be in Kafka yet, each with the OID of the table."""
        self._parked = parked
        self._named: dict[int, PgType] = {}
        self._seen: set[int] = set()
        self._asked: set[int] = set()
        """The catalog was asked for these relations after their next messages had come, which are not resolved yet."""
        self._added: dict[tuple[int, str], Attribute] = {}
        """By OID of the table and name, the columns whose missing values the catalog has told so far. Those told before
        this stream are in Kafka."""
        self._provisional: dict[int, tuple[messages.Relation, tuple[str, ...], object]] = {}
        self.settles_lsn = 0
        """The first transaction that commits here or later ends every provisional key; 0: there is none."""

    def name_type(self, message: messages.Type) -> None:
        """Remember a Type message: nothing else describes a type that was dropped meanwhile."""
        self._named[message.type_oid] = PgType(
            message.type_oid, message.nspname or "pg_catalog", message.typname, UNKNOWN
        )

    def expect(self, relation_oids: Collection[int]) -> None:
        """The next messages are about these relations, and have come: so the catalog can be asked for all of them."""
        if not self._seen.isdisjoint(relation_oids):
            self._catalog.forget()
        self._seen.update(relation_oids)
        self._asked = set(relation_oids)
        self._catalog.expect(relation_oids)

    def forget_expected(self) -> None:
        """More messages come now: the catalog is asked again for whatever they announce."""
        self._asked.clear()

    def is_expected(self, relation_oid: int) -> bool:
        """Whether `expect` has asked for the relation, and its message has not been resolved since."""
        return relation_oid in self._asked

    def resolve(self, message: messages.Relation) -> ResolvedRelation:
        """The relation that `message` announces, with its types and the key of its events, as its readers see it.

        Raises Unpublishable if the key cannot be known, and the table's last events had one; if a column of the key is
        left out, or masked by something else than a hash; or if the key of the settings cannot be the key.
        """
        if message.relation_oid in self._asked:
            self._asked.remove(message.relation_oid)
        elif message.relation_oid in self._seen:
            self._catalog.forget()
        self._seen.add(message.relation_oid)
        if chosen := self._chosen_key(message):
            return self._resolved(message, chosen, is_chosen=True)
        key = self._key(message)
        if message.replica_identity not in (IDENTITY_FULL, IDENTITY_NOTHING):
            return self._resolved(message, key)
        self.settles_lsn = max(self.settles_lsn, self._catalog.position())
        names = {column.name for column in message.columns}
        table = _table(message)
        last = set(self._last_key(table, message.relation_oid))
        if last <= names:
            return self._resolved(message, key | last, is_provisional=True)
        if not key and table not in self._parked:
            columns = self._catalog.columns(message.relation_oid)
            if names != {name for name, is_published in columns.items() if is_published}:
                raise _unknown_key(table, last)
        return self._resolved(message, key, is_provisional=True)

    def _last_key(self, table: tuple[str, str], oid: int) -> tuple[str, ...]:
        known = self._keys.get(table)
        if known is not None:
            return known[1] if known[0] == oid else ()
        return () if self._published_key is None else self._published_key(*table, oid)

    def opened(self, message: messages.Relation, relation: ResolvedRelation, changes: object) -> None:
        """Note what takes the changes of a relation, so that `settle` finds it again."""
        self._provisional.pop(message.relation_oid, None)
        if relation.is_provisional:
            self._provisional[message.relation_oid] = (message, relation.key, changes)

    def settle(self) -> list[tuple[ResolvedRelation, object]]:
        """End the provisional keys: the stream has come to where the catalog was asked.

        Returns the relations that have another key now, each with what has taken its changes so far.
        """
        self._catalog.forget()
        self.settles_lsn = 0
        settled: list[tuple[ResolvedRelation, object]] = []
        for message, before, changes in self._provisional.values():
            relation = self._resolved(message, self._key(message))
            if relation.key != before:
                settled.append((relation, changes))
        self._provisional.clear()
        return settled

    def _resolved(
        self,
        message: messages.Relation,
        key: Collection[str],
        *,
        is_provisional: bool = False,
        is_chosen: bool = False,
    ) -> ResolvedRelation:
        masking, has_key = self.rules.masking(message), bool(key)
        if masking is not None:
            key = self._masked_key(_table(message), key, masking)
            message = masking.relation(message)
        types = self._catalog.types({column.type_oid for column in message.columns})
        added = self._added_columns(message, masking)
        of_now = self._catalog.attributes(message.relation_oid)
        relation = ResolvedRelation(
            message.relation_oid,
            message.nspname or "pg_catalog",
            message.relname,
            message.replica_identity,
            [
                ResolvedColumn(
                    column.name,
                    self._type(column.type_oid, types.get(column.type_oid)),
                    column.typmod,
                    column.name in key,
                    added[column.name].missing_value if column.name in added else None,
                    masking is not None and masking.is_masked(column.name),
                    None if masking is not None and masking.is_masked(column.name) else _same_column(column, of_now),
                )
                for column in message.columns
            ],
            is_provisional,
            added,
            masking,
        )
        relation.has_lost_key = has_key and not key
        relation.has_chosen_key = is_chosen
        relation.shared_topic = self.rules.shared_topic(relation.schema, relation.name)
        relation.partition_by = self._partition_choice(relation)
        if not is_chosen:
            relation.order_key(self._index(message))
        self._keys[_table(message)] = message.relation_oid, relation.key
        return relation

    def _partition_choice(self, relation: ResolvedRelation) -> PartitionChoice:
        """What decides the partitions. A column that is not part of the key cannot: an old row may lack it."""
        rule = self.rules.partitioning(relation.schema, relation.name)
        choice = None if rule is None else rule.partition_by
        return BY_KEY if choice is None or (choice.column and choice.column not in relation.key) else choice

    def _chosen_key(self, message: messages.Relation) -> tuple[str, ...]:
        """The key of the settings; empty if they have none. Raises Unpublishable if it cannot be the key.

        A parked table then keeps its own key: its events must name their rows.
        """
        table = _table(message)
        rule = self.rules.keying(*table)
        if rule is None:
            return ()
        flagged = [column.name for column in message.columns if column.is_key]
        why = unfit_key(rule.key, message.replica_identity, [column.name for column in message.columns], flagged)
        if why and table not in self._parked:
            raise _unfit_chosen_key(table, rule.key, why)
        return () if why else rule.key

    def _masked_key(self, table: tuple[str, str], key: Collection[str], masking: RelationMasking) -> Collection[str]:
        """The key, behind the masks. Raises Unpublishable if they take a part of it."""
        for name in sorted(key):
            why = masking.unfit_for_key(name)
            if why and table in self._parked:
                return ()
            if why:
                raise _unfit_key(table, name, why)
        return key

    def _added_columns(self, message: messages.Relation, masking: RelationMasking | None) -> dict[str, Attribute]:
        """The columns that rows may be older than, with what these rows hold, by name.

        The catalog forgets it once it has written all rows anew. A column is known by its name, type and number,
        because another column may have got the name. The table's maker chooses the values, so all together are bounded.
        """
        oid, schema, name = message.relation_oid, *_table(message)
        published = {} if self._published_added is None else self._published_added(schema, name, oid)
        of_now = self._catalog.attributes(oid)
        added: dict[str, Attribute] = {}
        size = 0
        for column in message.columns:
            now = of_now.get(column.name)
            known = self._added.get((oid, column.name)) or published.get(column.name)
            if masking is not None:
                now = None if now is None else masking.attribute(column.name, now)
                known = None if known is None else masking.attribute(column.name, known, again=True)
            if now is not None and now.type_oid == column.type_oid and now.missing_value is not None:
                self._added[oid, column.name] = known = now
            if known is None or known.type_oid != column.type_oid or (now is not None and now.number != known.number):
                continue
            size += len(column.name) + len(known.missing_value or "")
            if size <= ADDED_SIZE_MAX:
                added[column.name] = known
        return added

    def takes_requests(self, relation_oid: int) -> bool:
        """Whether the rows of this table, which has the name of the table of requests, are requests."""
        return self._catalog.takes_requests(relation_oid)

    def _key(self, message: messages.Relation) -> set[str]:
        """The key by the message, and by the catalog where the message does not name it."""
        oid, names = message.relation_oid, {column.name for column in message.columns}
        index = set(self._index(message))
        if message.replica_identity in (IDENTITY_FULL, IDENTITY_NOTHING):
            return index if index <= names else set()
        flagged = {column.name for column in message.columns if column.is_key}
        if not index <= names:
            columns = self._catalog.columns(oid)
            hidden = {name for name in index if not columns.get(name, True)}
            if hidden and index - hidden == flagged:
                return set()
        return flagged

    def _index(self, message: messages.Relation) -> tuple[str, ...]:
        """The columns of the index that gives the key, in its order, as the catalog has it."""
        if message.replica_identity == IDENTITY_INDEX:
            return self._catalog.identity_index(message.relation_oid)
        return self._catalog.primary_key(message.relation_oid)

    def _type(self, oid: int, known: PgType | None) -> PgType:
        """The type with the name that the stream gave it, and with the structure that the catalog knows of it."""
        named = self._named.get(oid)
        if known is None:
            return named or PgType(oid, "", f"type {oid}", UNKNOWN)
        if named is None or known.kind == DOMAIN or named.qualified == known.qualified:
            return known  # the Type message of a domain names the type under it
        return replace(known, schema=named.schema, name=named.name)


def _same_column(column: messages.Column, of_now: Mapping[str, Attribute]) -> Attribute | None:
    """What the catalog says of the column, if it still has this one."""
    now = of_now.get(column.name)
    return now if now is not None and now.type_oid == column.type_oid else None


def _table(message: messages.Relation) -> tuple[str, str]:
    return message.nspname or "pg_catalog", message.relname


def _unfit_key(table: tuple[str, str], column: str, why: str) -> Unpublishable:
    name = qualified_name(*table)
    return Unpublishable(
        f"the column {column} of {name} {why}, and it is part of the key of its events: in [[table]], mask it by "
        '"hash", or not at all',
        f"Then start again, and run: cdcd unpark --discard {shell_word(name)}, which takes a new snapshot of the table",
        table=table,
        keyless=True,
        code="key-masked",
    )


def _unfit_chosen_key(table: tuple[str, str], key: tuple[str, ...], why: str) -> Unpublishable:
    name = qualified_name(*table)
    return Unpublishable(
        f"the events of {name} cannot have the key ({', '.join(key)}) of [[table]]: {why}",
        f"{unfit_key_hint(*table, key)}. Then start again, and run: cdcd unpark --discard {shell_word(name)}, which "
        "takes a new snapshot of the table",
        table=table,
        keyless=True,
        code="key-unfit",
    )


def _unknown_key(table: tuple[str, str], last: set[str]) -> Unpublishable:
    name = qualified_name(*table)
    return Unpublishable(
        f"the key of the next changes of {name} is not known: it has REPLICA IDENTITY FULL, its last events had the "
        f"key ({', '.join(sorted(last))}), and its next changes have neither these columns nor a primary key of now",
        f'Set sink.on_unpublishable = "park", start again, and run: cdcd unpark --discard '
        f"{shell_word(name)}, which takes a new snapshot of the table",
        table=table,
        keyless=True,
        code="key-unknown",
    )
