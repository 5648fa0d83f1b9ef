"""The settings of the daemon, with units, bounds and defaults.

Before: `loading` reads a TOML file, the environment and a secrets directory.
After: `cli` and `daemon` read the values and pass plain arguments on. No package of the flow imports this module.

The description of a field is also its comment in config/cdcd.toml (a test compares both). Write it for the person who
edits that file. Names end in their unit. Every buffer has a bound.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from cdcd.config.layers import SettingNames
from cdcd.debezium.added_fields import names_of
from cdcd.outbox.outbox_rules import AGGREGATE, TOPIC, OutboxRules
from cdcd.sink.acls import Places
from cdcd.sink.kafka.client_config import Property, with_token_function
from cdcd.sink.kafka.token_function import MSK_IAM, TokenFunction
from cdcd.sink.topics import TopicNames, TopicRule
from cdcd.snapshot.copy_hours import CopyHours, checked_hours, checked_time_zone
from cdcd.snapshot.table_rules import SnapshotRule, SnapshotRules
from cdcd.source.login import BUILT_IN, Login, password_maker
from cdcd.source.publication_contents import AskedPublication, operations_of
from cdcd.source.table_selection import TablePattern
from cdcd.transaction.column_masks import CONSTANT, HASH, LAST, NOTHING, Mask
from cdcd.transaction.column_rules import ColumnRule, ColumnRules, PartitionChoice

# `AvroSettings.register` has the name of a method of its metaclass, which no instance sees.
warnings.filterwarnings("ignore", 'Field name "register"', UserWarning)

Port = Annotated[int, Field(ge=0, le=65535)]

_TOPIC_PART: Final = re.compile(r"[A-Za-z0-9._-]*")
_LAST_MAX: Final = 1_000
_SECRET_MIN: Final = 16
_SECRET_MAX: Final = 64
"""BLAKE2 takes no longer key."""


def _slot_name(name: str) -> str:
    if not (1 <= len(name) <= 63 and all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in name)):
        raise ValueError(
            "must be 1 to 63 of the characters a-z, 0-9 and _: PostgreSQL allows no others in a slot's name"
        )
    return name


def _without_repetition(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"must have each name once, but has {name!r} more than once")
    return names


def _table_pattern(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if not TablePattern(pattern).is_valid:
            raise ValueError(f"must be written as schema.table, where * stands for any name, not {pattern!r}")
    return patterns


def _outbox_table(pattern: str | None) -> str | None:
    if pattern is not None and not TablePattern(pattern).is_valid:
        raise ValueError('must be written as schema.table, as in "public.outbox"')
    return pattern


def _outbox_topic(topic: str) -> str:
    before, found, after = topic.partition(AGGREGATE)
    if not (found and "." in before and _TOPIC_PART.fullmatch(before + after)):
        raise ValueError(
            f'must be written as "outbox.{AGGREGATE}", with a dot before {AGGREGATE}, and else letters, digits, ".", '
            '"_" and "-" only'
        )
    return topic


def _function(*built_in: str) -> AfterValidator:
    """Check the name of a function: one of `built_in`, or module:function."""

    def check(name: str | None) -> str | None:
        module, _, path = (name or "").partition(":")
        is_path = all(part.isidentifier() for part in [*module.split("."), *path.split(".")])
        if name is not None and name not in built_in and not is_path:
            raise ValueError(f"must be written as module:function, or be {' or '.join(built_in)}")
        return name

    return AfterValidator(check)


class Section(BaseModel):
    """One table of the TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy in which the cached properties follow from its own values."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


class SourceSettings(Section):
    """PostgreSQL: where the changes come from."""

    dsn: str = Field(
        repr=False,
        examples=["host=localhost dbname=shop user=cdcd"],
        description="The database, as libpq takes it: a conninfo string or a postgresql:// URI. Required. Keep the "
        "password out of this file: put it into ~/.pgpass, the file that PGPASSFILE names, or PGPASSWORD, or put the "
        "whole dsn into a secrets file.",
    )
    primary_dsn: str | None = Field(
        None,
        repr=False,
        examples=["host=primary dbname=shop user=cdcd"],
        description="If dsn leads to a standby (PostgreSQL 16 or later): the same database on its primary. While a "
        "slot of the standby waits for a record of the primary, cdcd runs pg_log_standby_snapshot() there. The role "
        "needs EXECUTE on that function. cdcd snapshot and cdcd unpark make their requests there.",
    )
    password_command: tuple[str, ...] = Field(
        (),
        repr=False,
        examples=[["gcloud", "sql", "generate-login-token"]],
        description="A command that prints the password: the first line of its output. cdcd runs it without a shell, "
        "for at most 20 s, when it logs in to PostgreSQL, and uses the password for a minute. If it fails, a daemon "
        "that has streamed tries again. The log then shows the last line of its standard error.",
    )
    password_function: Annotated[str | None, _function(*BUILT_IN)] = Field(
        None,
        examples=["aws-rds-iam"],
        description='The same as a function: "aws-rds-iam" for the IAM of Amazon RDS and Aurora (pip install '
        "'cdcd[aws]'), or module:function for one of yours, which gets host, port and user, and returns the password.",
    )
    slot: Annotated[str, AfterValidator(_slot_name)] = Field(
        "cdcd",
        description="The logical replication slot. One daemon at a time streams from it. A second daemon waits for it.",
    )
    publication: str = Field(
        "cdcd",
        min_length=1,
        max_length=63,
        description="The publication: PostgreSQL sends the tables and operations in it.",
    )
    tables: Annotated[tuple[str, ...], AfterValidator(_table_pattern)] = Field(
        ("public.*",),
        min_length=1,
        description="The tables of the publication, as schema.table; * stands for any name. cdcd makes the publication "
        "if it is missing. When a stream begins, cdcd alters the publication that it has made to what this, exclude, "
        "publish and publish_via_partition_root say. It uses a publication that somebody else has made or altered as "
        "it is; cdcd check says what to run (cdcd help tables).",
    )
    exclude: Annotated[tuple[str, ...], AfterValidator(_table_pattern)] = Field(
        (),
        examples=[["public.audit_*"]],
        description="Tables that are left out, with their partitions, although tables names them. The publication then "
        "lists its tables: a table that is made later joins it when the next stream begins.",
    )
    publish: tuple[Literal["insert", "update", "delete", "truncate"], ...] = Field(
        ("insert", "update", "delete", "truncate"),
        min_length=1,
        description="The operations of the publication. Topics get no events of the others.",
    )
    publish_via_partition_root: bool = Field(
        False,
        description="The publication has each partitioned table as one table, with one topic. If this is false, each "
        "partition is a table with a topic of its own.",
    )
    create: bool = Field(
        True,
        description="Create the publication and the slot if they are missing, and alter the publication that cdcd has "
        "made. If this is false, a missing one is an error.",
    )
    binary: Literal["auto"] | bool = Field(
        "auto",
        description='Ask PostgreSQL for values in their binary form, which is several times faster than text. "auto" '
        "uses text while a published column has a type whose binary form cdcd does not know.",
    )
    streaming: Literal["auto", "off", "on", "parallel"] = Field(
        "auto",
        description="Let PostgreSQL send large transactions while they are in progress. cdcd spools them until they "
        'commit. "auto" uses the best mode that the server has: "parallel" from PostgreSQL 16 on, else '
        '"on". With "off", the server keeps a large transaction on its own disk and sends it after the '
        "commit.",
    )
    two_phase: bool = Field(
        False,
        description="Receive PREPARE TRANSACTION when it happens (PostgreSQL 15 or later). The rows are still "
        "published at COMMIT PREPARED. A slot that has this property keeps it.",
    )
    failover: bool = Field(
        False,
        description="Let physical standbys keep the slot in sync (PostgreSQL 17 or later), so that the stream "
        "continues after a failover. The dsn then needs several hosts and "
        "target_session_attrs=read-write.",
    )
    on_slot_lost: Literal["stop", "resnapshot", "repair"] = Field(
        "stop",
        description="The reaction if the slot is gone, if it has lost WAL with changes that Kafka does not have, or if "
        "Kafka has lost the slot's progress. "
        '"stop" reports it and ends the daemon. "resnapshot" creates a new slot if it is gone, '
        "records the gap on {prefix}.progress, and takes a new snapshot of all tables. "
        '"repair" compares each table with its topic instead, and publishes only what differs, with sink.format = '
        '"cdcd" only. A table that cannot be repaired row by row gets a new snapshot all the same (cdcd '
        "help servers lists the cases), and so do all tables if the "
        "progress is lost. A parked table waits for cdcd unpark, and then gets one.",
    )
    messages: bool = Field(
        True,
        description="Publish logical decoding messages (pg_logical_emit_message) on {prefix}.messages. "
        "outbox.message_prefix needs them.",
    )
    origin: Literal["any", "none"] = Field(
        "any",
        description='"none" leaves out changes that PostgreSQL itself received by replication (PostgreSQL 16 or '
        "later).",
    )
    application_name: str = Field(
        "cdcd",
        max_length=63,
        description="The daemon's name in pg_stat_replication. If synchronous_standby_names contains it, a COMMIT "
        "waits for Kafka.",
    )
    status_interval_s: float = Field(
        10,
        ge=0.1,
        le=3600,
        description="How often the daemon tells PostgreSQL what is durable. A third of the server's "
        "wal_sender_timeout applies instead if it is shorter.",
    )

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if not (self.password_command or self.password_function):
            return self
        if self.password_command and self.password_function:
            raise ValueError("password_command and password_function exclude each other")
        from cdcd.source.session import dsn_parameters  # here: most settings need no libpq

        if "password" in dsn_parameters(self.dsn):
            raise ValueError("dsn has a password, and another setting makes one: they exclude each other")
        return self

    @cached_property
    def login(self) -> Login:
        """How the server is logged in to."""
        return Login(self.dsn, password_maker(self.password_command, self.password_function))

    @cached_property
    def primary_login(self) -> Login | None:
        """The same of the primary, if dsn leads to a standby; the same command or function makes its password."""
        return Login(self.primary_dsn, self.login.maker) if self.primary_dsn else None

    @property
    def asked(self) -> AskedPublication:
        """What the publication is to have."""
        operations, slot = operations_of(self.publish), self.slot if self.create else ""
        return AskedPublication(self.tables, self.exclude, operations, self.publish_via_partition_root, slot)

    @property
    def accepts_gap(self) -> bool:
        """Whether the stream goes on although changes are missing."""
        return self.on_slot_lost != "stop"


class SnapshotSettings(Section):
    """Snapshots: the rows that a table already has."""

    mode: Literal["initial", "never", "only"] = Field(
        "initial",
        description='"initial" publishes the rows that a table already has, once, as events with op r, before the '
        'changes of the table. It does the same for a table that is published later. "never" publishes '
        'changes only. "only" ends when the rows are published; the slot keeps later changes. snapshot in [[table]] '
        "says it for some tables.",
    )
    workers: int = Field(2, ge=1, le=64, description="Connections that read tables at the same time.")
    chunk_bytes: int = Field(
        16 * 1024**2,
        ge=8192,
        le=100 * 1024**3,
        description="How much of a table one worker reads in one chunk. A finished chunk is not read again after a "
        "crash.",
    )
    rows_per_second: int = Field(
        0,
        ge=0,
        le=1_000_000_000,
        description="How many rows of snapshots the daemon reads a second, at most; 0: no limit. Changes of the stream "
        "are never slowed. The daemon takes a new value without a new stream.",
    )
    bytes_per_second: int = Field(
        0,
        ge=0,
        le=100 * 1024**3,
        description="How many bytes of rows of snapshots the daemon reads a second, at most, as COPY sends them; 0: no "
        "limit. Both limits hold.",
    )
    hours: Annotated[str, AfterValidator(checked_hours)] = Field(
        "",
        examples=["22:00-06:00"],
        description="The hours of each day in which snapshots are read, from one time to another one; empty: always. "
        "Outside of them the daemon begins no snapshot, and pauses one that it reads. The stream goes on, but for "
        "changes of the tables whose copy has begun: they follow the copy. Repairs of rows wait only if a snapshot has "
        "begun.",
    )
    time_zone: Annotated[str, AfterValidator(checked_time_zone)] = Field(
        "UTC",
        examples=["Europe/Berlin"],
        description="The time zone of hours, by its IANA name.",
    )

    @property
    def copy_hours(self) -> CopyHours:
        """The hours, for the flow."""
        return CopyHours(self.hours, self.time_zone)


class TablesSettings(Section):
    """Tables: what the daemon does about what becomes of them."""

    on_key_change: Literal["copy", "stop"] = Field(
        "copy",
        description="The reaction if a table gets another primary key or replica identity. The rows that were not "
        'written since are in Kafka under the old key. "copy" takes a new snapshot of the table, which begins with a '
        'truncate event: that ends the old keys. "stop" ends the daemon before the first event under the new key. A '
        'table whose topic has no snapshot (snapshot.mode = "never") is not copied; the log says so.',
    )
    on_replaced: Literal["copy", "stop"] = Field(
        "copy",
        description="The reaction if a topic does not have the rows of its table any more, and no change in the stream "
        "says so: another table has the name, the publication was without the table for a time, ALTER TABLE has "
        "written all rows again, or a partition of a root came with its rows, or left. "
        '"copy" takes a new snapshot of the table, which begins with a truncate event. "stop" ends the daemon before '
        "the first event of the new table.",
    )
    hash_secret: str | None = Field(
        None,
        repr=False,
        examples=["16 to 64 bytes"],
        description='The key of all masks that are "hash", 16 to 64 bytes: whoever has it can try out values. Keep it '
        "out of this file: put it into the secrets file tables__hash_secret. Another secret makes other hashes, so the "
        "tables need a new snapshot then.",
    )


class TableSettings(BaseModel):
    """What holds for some tables: each [[table]] is an entry. Columns are named as PostgreSQL names them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    match: str = Field(
        examples=["public.customers"],
        description="The tables, as schema.table; * stands for any name. For each thing that "
        "entries say, the first one counts that matches a table and says it: the columns (include or exclude), mask, "
        "key, topic, partitions, partition_by, snapshot, where, order, hours, time_zone and the rates.",
    )
    include: tuple[str, ...] = Field(
        (),
        examples=[["id", "total"]],
        description="Only these columns are published. A column that is added later, or gets another name, is not.",
    )
    exclude: tuple[str, ...] = Field(
        (),
        examples=[["notes"]],
        description="All columns but these are published. include and exclude exclude each other.",
    )
    mask: dict[str, Literal["hash", "null"] | dict[Literal["last", "constant"], StrictInt | StrictStr]] = Field(
        default_factory=dict,
        examples=[{"email": "hash", "phone": {"last": 4}, "name": "null", "city": {"constant": "x"}}],
        description='What takes the place of the values of a column. "hash": a keyed hash of 32 hexadecimal digits, '
        'the same for the same value, which needs tables.hash_secret. "null": nothing. { last = 4 }: **** and the last '
        'four characters. { constant = "x" }: this text. A null stays a null. A column of a key may be masked by '
        '"hash" only.',
    )
    key: tuple[str, ...] = Field(
        (),
        examples=[["tenant", "id"]],
        description="The columns of the key of the events, in place of the primary key. PostgreSQL must send them with "
        "each deleted row: they are columns of its replica identity, or that is FULL. cdcd does not look whether the "
        "key is unique: rows that share a key are one row for whoever reads by key, and for compaction.",
    )
    topic: str = Field(
        "",
        examples=["{prefix}.orders-of-{schema}"],
        description="The topic of the table, in place of sink.topic. It must have {prefix}. If match has a star for "
        "the schema and this has no {schema}, the tables that match share the topic; so it is with {table}, and with "
        "several entries of the same topic. The keys and events of such a topic name their table (cdcd help tables).",
    )
    partitions: int | None = Field(
        None,
        ge=1,
        le=10_000,
        examples=[12],
        description="Partitions of the topic, if cdcd makes it, in place of sink.partitions.",
    )
    partition_by: Literal["key", "one"] | dict[Literal["column"], StrictStr] | None = Field(
        None,
        examples=[{"column": "tenant"}],
        description='What decides the partition of an event. "key": Kafka\'s hash of the key; this is so without it. '
        '{ column = "tenant" }: the hash of one column of the key, so that all rows of a tenant are in one partition, '
        'in order. "one": all events go to partition 0. The events of a key always have one partition: where the key '
        "lacks the column, the key decides. Choose it before the topic has events: later ones may go elsewhere.",
    )

    snapshot: Literal["initial", "never"] | None = Field(
        None,
        examples=["never"],
        description='Whether the daemon copies the table by itself, in place of snapshot.mode. "never" is for a table '
        "that is too large: where source.on_slot_lost or sink.on_topic_lost would take a new snapshot, the progress "
        "says instead that the topic lacks rows. cdcd snapshot copies it all the same, and so does the daemon if the "
        "table is replaced (tables.on_replaced).",
    )
    where: str | None = Field(
        None,
        min_length=1,
        examples=["created_at >= '2026-01-01'"],
        description="Snapshots publish only the rows for which this SQL condition is true. Columns stand in it without "
        "the table's name. Changes are published whatever it says, so the topic is no copy of the table: cdcd verify "
        "refuses it, and after a gap the table gets a new snapshot.",
    )
    order: int | None = Field(
        None,
        ge=-1_000_000,
        le=1_000_000,
        examples=[-1],
        description="Tables with a lower number are read before others in a snapshot. Without it: 0.",
    )
    hours: Annotated[str, AfterValidator(checked_hours)] | None = Field(
        None,
        examples=["22:00-06:00"],
        description="The hours of each day in which snapshots of the table are read, in place of snapshot.hours; "
        "empty: always. A table that is asked for while a snapshot runs waits until that is complete.",
    )
    time_zone: Annotated[str, AfterValidator(checked_time_zone)] | None = Field(
        None,
        examples=["Europe/Berlin"],
        description="The time zone of the table's hours, in place of snapshot.time_zone.",
    )
    rows_per_second: int | None = Field(
        None,
        ge=0,
        le=1_000_000_000,
        examples=[5000],
        description="How many rows of snapshots of the table the daemon reads a second, at most; 0: no such limit. "
        "Each table that matches has the limit for itself, and those of [snapshot] hold for all tables together. A "
        "worker that reads such a table waits with it; the other workers read other tables.",
    )
    bytes_per_second: int | None = Field(
        None,
        ge=0,
        le=100 * 1024**3,
        examples=[10_000_000],
        description="The same limit in bytes, as COPY sends them. Both hold.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not TablePattern(self.match).is_valid:
            raise ValueError('must have a match that is written as schema.table, as in "public.*"')
        if self.include and self.exclude:
            raise ValueError("has include and exclude, which exclude each other")
        if not self.model_fields_set - {"match"}:
            raise ValueError("says nothing but match")
        if len(set(self.key)) < len(self.key):
            raise ValueError("has a key that names a column twice")
        if isinstance(self.partition_by, dict) and not self.partition_by.get("column"):
            raise ValueError('has a partition_by that is none of "key", "one" and { column = "x" }')
        for column, mask in self.mask.items():
            if isinstance(mask, dict) and not _is_mask(mask):
                raise ValueError(
                    f'has a mask of {column} that is none of "hash", "null", {{ last = 4 }} and {{ constant = "x" }}'
                )
        return self

    @property
    def needs_secret(self) -> bool:
        """Whether a mask is a hash."""
        return "hash" in self.mask.values()

    @property
    def topic_rule(self) -> TopicRule:
        """What it says of topics, for the flow."""
        return TopicRule(TablePattern(self.match), self.topic, self.partitions or 0)

    @property
    def rule(self) -> ColumnRule:
        """What it says of columns, for the flow."""
        masks = {name: _mask(mask) for name, mask in self.mask.items()}
        by = self.partition_by
        choice = PartitionChoice(by["column"]) if isinstance(by, dict) else PartitionChoice(is_one=by == "one")
        return ColumnRule(
            self.match, self.include, self.exclude, masks, self.key, partition_by=None if by is None else choice
        )

    @property
    def snapshot_rule(self) -> SnapshotRule:
        """What it says of snapshots, for the flow."""
        is_taken = None if self.snapshot is None else self.snapshot == "initial"
        return SnapshotRule(
            self.match,
            is_taken,
            self.where,
            self.order,
            self.hours,
            self.time_zone,
            self.rows_per_second,
            self.bytes_per_second,
        )


def _is_mask(mask: Mapping[Any, int | str]) -> bool:
    """Whether it is { last = 4 } or { constant = "x" }."""
    if mask.keys() == {"last"}:
        return isinstance(mask["last"], int) and 1 <= mask["last"] <= _LAST_MAX
    return mask.keys() == {"constant"} and isinstance(mask["constant"], str)


def _mask(mask: str | Mapping[Any, int | str]) -> Mask:
    if isinstance(mask, str):
        return Mask(HASH if mask == "hash" else NOTHING)
    if "last" in mask:
        return Mask(LAST, kept=int(mask["last"]))
    return Mask(CONSTANT, constant=str(mask["constant"]).encode())


class AvroSettings(Section):
    """Avro, and the schema registry."""

    registry_url: str | None = Field(
        None,
        repr=False,
        examples=["http://localhost:8081"],
        description="A Confluent-compatible schema registry. Without one, cdcd publishes the schemas of its own format "
        'on {prefix}.schemas; "debezium" and "row" need one. With an encoding of JSON there must be none.',
    )
    registry_config: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        examples=[{"basic.auth.user.info": "user:password"}],
        description="More properties of the registry's client, by confluent-kafka's names. Unless they are set here, "
        "timeout is 5 (seconds) and max.retries is 0, because the stream waits for the registry. The daemon repeats "
        "requests itself.",
    )
    register: bool = Field(
        True,
        description="Register schemas that the registry lacks. false is for registries that others fill, with "
        "`cdcd schema --register` for example: a table whose schema is missing is then handled as "
        "sink.on_unpublishable says.",
    )
    subject_strategy: Literal["topic", "record", "topic-record"] = Field(
        "topic",
        description='The subjects in the registry. "topic": {topic}-key and {topic}-value. "record": the full name of '
        "the record, such as public.orders.Envelope in cdcd's own format. "
        '"topic-record": {topic}- and the full name. Confluent calls these '
        "TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy.",
    )
    numeric: Literal["decimal", "string"] = Field(
        "decimal",
        description="How numeric(p,s) is encoded in cdcd's own format in Avro: as a decimal, or as a string. numeric "
        "without (p,s) is always a string, and so is every numeric in JSON. For Debezium's values, "
        "debezium.decimal_handling_mode says this.",
    )


class DebeziumSettings(Section):
    """Debezium's format: the settings of its connector. For sink.format = "debezium", and most for "row"."""

    decimal_handling_mode: Literal["precise", "double", "string"] = Field(
        "precise",
        description='How numeric and money are written. "precise": exactly, as bytes. A value that is no number (NaN, '
        "Infinity) is null then.",
    )
    time_precision_mode: Literal[
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"
    ] = Field("adaptive", description="How date, time and timestamp are written.")
    interval_handling_mode: Literal["numeric", "string"] = Field(
        "numeric", description='How interval is written: as about so many microseconds, or as "P1Y2M3DT4H5M6.78S".'
    )
    binary_handling_mode: Literal["bytes", "base64", "base64-url-safe", "hex"] = Field(
        "bytes", description="How bytea, and the content of logical messages, are written."
    )
    hstore_handling_mode: Literal["json", "map"] = Field("json", description="How hstore is written.")
    unavailable_value_placeholder: str = Field(
        "__debezium_unavailable_value",
        max_length=1000,
        description="What stands for a value that PostgreSQL did not send because it did not change.",
    )
    include_unknown_datatypes: bool = Field(
        False,
        description="Write columns of types that Debezium does not know, such as multiranges and composite types: "
        "their text, by binary_handling_mode. If this is false, events do not have these columns.",
    )
    schema_name_adjustment_mode: Literal["none", "avro", "avro_unicode"] = Field(
        "none",
        description='What the names of schemas ("avro" and "json-schema") have for characters that Avro does not '
        "allow: themselves (a registry refuses them), _, or _uXXXX.",
    )
    field_name_adjustment_mode: Literal["none", "avro", "avro_unicode"] = Field(
        "none",
        description="What the names of fields have for such characters, in every encoding. Two columns must not get "
        "the same name.",
    )
    tombstones: bool = Field(
        True,
        description="Publish a record with the same key and no value after each delete, for compacted topics. For "
        'sink.format = "row", row.delete_tombstone_handling_mode says this.',
    )
    truncates: bool = Field(
        False,
        description="Publish truncates, as events with op t. Many consumers do not know them. If this is false, a "
        "TRUNCATE, or a new snapshot of a table, leaves rows in a consumer that the table does not have any more. For "
        'sink.format = "row" it must be false.',
    )
    provide_transaction_metadata: bool = Field(
        False,
        description="Number the events of each transaction, in their field transaction, and publish on "
        "{prefix}.transaction where it begins and ends, and how many events it has. Only one slot of a sink.prefix may "
        'do so. With sink.format = "row" it must be false.',
    )
    replace_null_with_default: bool = Field(
        False,
        description="Write the default of a column instead of NULL, as Kafka Connect's converters do: that of JSON "
        "unless its replace.null.with.default is false, that of Avro unless its ignore.default.for.nullables is true. "
        "A consumer then cannot tell the two apart.",
    )
    key_enforce_uniqueness: bool = Field(
        True,
        description="Tables that share a topic have a field in their keys that names the table, as with Debezium's "
        "ByLogicalTableRouter: then no two of them have the same key. Set it to false only if no two rows of these "
        "tables ever have the same key, as in partitions of one table.",
    )
    key_field_name: str = Field(
        "__dbz__physicalTableIdentifier",
        min_length=1,
        max_length=200,
        description="The name of this field, which is the last one of the key. Its value is the topic that the table "
        "would have for itself: shop.public.orders.",
    )
    unrepresentable_in_header: bool = Field(
        False,
        description="Give an event the header __cdcd.unrepresentable if Debezium's types cannot hold one of its "
        "values, or hold another one that is near, or have no column for its type. The header has PostgreSQL's text of "
        "these values, as JSON. cdcd check names columns that lose values.",
    )


class RowSettings(Section):
    """Flat rows, by the names of Debezium's ExtractNewRecordState. For sink.format = "row"."""

    add_fields: tuple[str, ...] = Field(
        ("op", "lsn", "source.ts_ms"),
        description='What each row gets behind its columns, from Debezium\'s event: "op", "ts_ms", or a field of its '
        'source, such as "source.ts_ms" (the time of the commit), "lsn" or "table". "lsn:position" gives another name.',
    )
    add_fields_prefix: str = Field(
        "__",
        max_length=100,
        description="What the names of these fields begin with. A dot becomes _: __op, __lsn, __source_ts_ms.",
    )
    delete_tombstone_handling_mode: Literal["tombstone", "rewrite", "rewrite-with-tombstone", "drop"] = Field(
        "tombstone",
        description='What a delete is. "tombstone": a record without a value. "rewrite": the old row, as far as '
        'PostgreSQL sends it (REPLICA IDENTITY), with __deleted = "true"; all other rows have "false". '
        '"rewrite-with-tombstone": both. "drop": nothing.',
    )

    @model_validator(mode="after")
    def _has_known_fields(self) -> Self:
        names_of(self.add_fields, self.add_fields_prefix)
        return self


def _payload_subject(subject: str | None) -> str | None:
    if subject is not None and TOPIC not in subject:
        raise ValueError(f"must have {TOPIC}, so that each topic has a subject")
    return subject


class OutboxSettings(Section):
    """The outbox: rows that applications write as events, each for a topic that it names. The same in every format."""

    table: Annotated[str | None, AfterValidator(_outbox_table)] = Field(
        None,
        examples=["public.outbox"],
        description="The table, as schema.table; * stands for any name. Each row that is inserted is an event: it goes "
        "to the topic of its aggregate's type, under its aggregate's id, with its payload as it is. Updates, deletes "
        "and snapshots publish nothing. A row without type or id of an aggregate goes to the table's own topic.",
    )
    message_prefix: str | None = Field(
        None,
        min_length=1,
        examples=["outbox"],
        description="Logical messages (pg_logical_emit_message) with this prefix are events, too. Their content is a "
        "JSON object with these fields. A message that is no such object goes to {prefix}.messages.",
    )
    topic: Annotated[str, AfterValidator(_outbox_topic)] = Field(
        "outbox.{aggregate}",
        description="The topic of the events, behind {prefix} and a dot. {aggregate} is the type of the aggregate. It "
        "has a dot in front of {aggregate}, so that no type is the name of one of cdcd's own topics.",
    )
    id: str = Field("id", min_length=1, description="The column of the event's id, which becomes a header.")
    aggregate_type: str = Field(
        "aggregatetype", min_length=1, description="The column of the type of the aggregate, which decides the topic."
    )
    aggregate_id: str = Field(
        "aggregateid", min_length=1, description="The column of the aggregate's id, which is the key: its text."
    )
    type: str = Field("type", min_length=1, description="The column of the event's type, which becomes a header.")
    payload: str = Field(
        "payload",
        min_length=1,
        description="The column of the value: of bytea the bytes, of other types the text. NULL is a record without a "
        "value.",
    )
    payload_subject: Annotated[str | None, AfterValidator(_payload_subject)] = Field(
        None,
        examples=["{topic}-value"],
        description="Payloads that are JSON become Avro, by the newest schema of this subject in avro.registry_url, "
        "with its id in front. {topic} is the topic of the event. A payload that the schema does not fit goes to the "
        "table's own topic. The bytes of a bytea go as they are.",
    )
    headers: tuple[str, ...] = Field(
        (), examples=[["tenant", "trace"]], description="Columns that become headers of the same name, as text."
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = (self.id, self.aggregate_type, self.aggregate_id, self.type, self.payload, *self.headers)
        if len(set(names)) < len(names):
            raise ValueError("names a column twice")
        return self

    @property
    def is_on(self) -> bool:
        """Whether there is an outbox."""
        return self.table is not None or self.message_prefix is not None

    @property
    def topic_parts(self) -> tuple[str, str] | None:
        """What its topics have before and behind the type of the aggregate; None without an outbox."""
        before, _, behind = self.topic.partition(AGGREGATE)
        return (before, behind) if self.is_on else None

    @property
    def rules(self) -> OutboxRules:
        """The same for the flow."""
        names = (self.id, self.aggregate_type, self.aggregate_id, self.type, self.payload)
        return OutboxRules(self.table, self.message_prefix, self.topic, names, self.headers)


class SinkSettings(Section):
    """Kafka: where the events go."""

    format: Literal["cdcd", "debezium", "row"] = Field(
        "cdcd",
        description="What events look like: cdcd's own; \"debezium\", for consumers of Debezium's events (section "
        'debezium); or "row": the new row alone, for sinks (sections row and debezium). `cdcd help events` says who '
        "reads which. A slot keeps its format and its encoding.",
    )
    encoding: Literal["avro", "json", "json-schema"] = Field(
        "avro",
        description='How events are encoded. "json-schema" puts a schema into every key and value, as Kafka Connect '
        'wants it. "debezium" and "row" in "avro" need avro.registry_url. cdcd spark reads only "cdcd" in "avro".',
    )

    bootstrap_servers: str = Field(
        min_length=1,
        examples=["localhost:9092"],
        description="The first brokers to contact, as host:port, separated by commas. Required.",
    )
    prefix: str = Field(
        "cdcd",
        description="The first part of every topic name, and of the transactional.ids ({prefix}-{slot} and "
        "{prefix}-{slot}.2).",
    )
    topic: str = Field(
        "{prefix}.{schema}.{table}",
        description="The topic of a table's events, built from {prefix}, {schema} and {table}. topic in [[table]] says "
        "that of some tables.",
    )
    partitions: int = Field(
        4,
        ge=1,
        le=10_000,
        description="Partitions of the topics that cdcd creates for tables. An existing topic keeps its partitions.",
    )
    replication_factor: int = Field(
        1,
        ge=-1,
        le=100,
        description="Replicas of the topics that cdcd creates. Use 3 in a cluster that must survive the loss of a "
        "broker. -1: the brokers' default.replication.factor.",
    )
    topic_config: dict[str, str] = Field(
        default_factory=dict,
        examples=[{"retention.ms": "604800000", "compression.type": "producer"}],
        description="Properties of the topics that cdcd creates for tables, by Kafka's names. cdcd's own topics use "
        "only min.insync.replicas from here.",
    )
    tombstones: bool = Field(
        False,
        description="Publish a record with the same key and no value after each delete, for compacted topics. A "
        "truncate event then has a key of no bytes: a compacted topic takes no record without a key. For sink.format = "
        '"debezium", debezium.tombstones says this; for "row", row.delete_tombstone_handling_mode.',
    )
    headers: Annotated[
        tuple[Literal["op", "table", "lsn", "txid", "commit_time", "schema_version", "cloudevents"], ...],
        AfterValidator(_without_repetition),
    ] = Field(
        (),
        examples=[("op", "table")],
        description="Headers of every event, in every format. op, table, lsn, txid, commit_time and schema_version "
        "give one header each, named like __op. cloudevents gives those of CloudEvents in binary mode. Headers cost "
        "CPU time; `cdcd help events` says how much.",
    )
    delivery: Literal["exactly_once", "at_least_once"] = Field(
        "exactly_once",
        description='"at_least_once" uses no Kafka transactions: a restart may publish rows twice, and a PostgreSQL '
        "transaction becomes visible row by row.",
    )
    on_topic_lost: Literal["stop", "resnapshot"] = Field(
        "stop",
        description="The reaction if a topic is gone, was made again, or ends before what was published. Its events "
        'are lost. "stop" reports it and ends the daemon. "resnapshot" takes a new snapshot of the table, which begins '
        "with a truncate event.",
    )
    on_unpublishable: Literal["stop", "park"] = Field(
        "park",
        description="The reaction if a record is too large for its topic, if Kafka refuses the topic of a table, or if "
        'the registry refuses or lacks its schema. "park" sends all further events of that table to {prefix}.parked, '
        'in order, until `cdcd unpark TABLE`. The other tables continue. "stop" ends the daemon: then whoever may '
        "write a row can stop it.",
    )
    transaction_rows_max: int = Field(
        100_000, ge=1, le=100_000_000, description="Commit the Kafka transaction once it holds this many events."
    )
    transaction_bytes_max: int = Field(
        64 * 1024**2,
        ge=1024,
        le=10 * 1024**3,
        description="Commit the Kafka transaction once its events have this size.",
    )
    transaction_linger_ms: int = Field(
        250,
        ge=1,
        le=60_000,
        description="Commit the Kafka transaction once it has been open for this long in an unbroken backlog. The "
        "first transaction after a start is open for 20 ms at most. If there is nothing more to read, or "
        "if a COMMIT waits for cdcd, cdcd commits at once.",
    )
    queue_bytes_max: int = Field(
        32 * 1024**2,
        ge=1024**2,
        le=10 * 1024**3,
        description="Size of the encoded events that may wait for the producer. At this size, reading pauses.",
    )
    librdkafka: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        repr=False,
        examples=[{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "cdcd"}],
        description="Any property of librdkafka, by its own name. It overrides what cdcd sets. cdcd refuses a "
        "property that would break a guarantee. Put passwords into a secrets file: "
        "sink__librdkafka__sasl.password.",
    )
    token_function: Annotated[str | None, _function(MSK_IAM)] = Field(
        None,
        examples=["aws-msk-iam"],
        description='A function that makes the tokens of SASL/OAUTHBEARER: "aws-msk-iam" for the IAM of Amazon MSK '
        "(pip install 'cdcd[aws]'), or module:function for one of yours, which is called as confluent-kafka's "
        "oauth_cb: it gets the text of sasl.oauthbearer.config, and returns the token and when it expires, in seconds "
        "since 1970. security.protocol is then SASL_SSL, unless librdkafka sets it. A token is renewed when 80% of its "
        "time have passed. If that fails, the daemon tries again every ten seconds.",
    )

    @property
    def event_format(self) -> str:
        """The format and the encoding, as the progress has them; empty for cdcd's own in Avro."""
        chosen = f"{self.format}/{self.encoding}"
        return "" if chosen == "cdcd/avro" else chosen

    @cached_property
    def client_properties(self) -> Mapping[str, Property]:
        """The properties of all clients of Kafka: `librdkafka`, and what `token_function` adds."""
        made = TokenFunction(self.token_function, self.bootstrap_servers) if self.token_function else None
        return with_token_function(self.librdkafka, made)


class SpoolSettings(Section):
    """The spool: transactions in progress, which may still be rolled back."""

    directory: str | None = Field(
        None,
        examples=["/var/lib/cdcd/spool"],
        description="The directory for rows that do not fit into memory. cdcd makes a subdirectory named after the "
        "slot and its server, which no other user may enter, and removes what an earlier run left there. Without this "
        "setting, it uses spool in $STATE_DIRECTORY, or else cdcd/spool in $XDG_STATE_HOME or ~/.local/state.",
    )
    memory_bytes: int = Field(
        64 * 1024**2,
        ge=1024**2,
        le=10 * 1024**3,
        description="Memory for the spooled transactions together. When it is full, the rows of the largest "
        "transaction move to disk.",
    )
    bytes_max: int = Field(
        100 * 1024**3,
        ge=1024**2,
        le=100 * 1024**4,
        description="Disk space for the spool. When it is full, large transactions wait on the server's own disk "
        "instead, until cdcd restarts. Prepared transactions must fit.",
    )


class MonitoringSettings(Section):
    """The HTTP port for Prometheus, Kubernetes and people."""

    host: str = Field(
        "127.0.0.1",
        description="The address to listen on. Everyone who reaches it sees the names of tables and servers, and the "
        "last errors, but no rows and no passwords. 0.0.0.0 lets Prometheus on another machine in; the container image "
        "sets it.",
    )
    port: Port = Field(
        9478,
        description="The port of /, /status.json, /metrics, /healthz, /readyz and /availablez. With 0, cdcd takes a "
        "free port and logs it.",
    )
    stalled_after_s: float = Field(
        120,
        ge=1,
        le=86_400,
        description="/healthz fails when a stage has work and makes no progress for this long. The stages are the "
        "loop, PostgreSQL's answers, the path to Kafka, and the restart of the stream. Set it longer than Kafka may be "
        "away: a restart does not bring Kafka back.",
    )


class LogSettings(Section):
    """The daemon's log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description="The least severe level that is written. debug adds tracebacks. Row values are never logged.",
    )
    format: Literal["text", "json"] = Field("text", description="text for people; json for one JSON object a line.")
    progress_interval_s: float = Field(
        10,
        ge=1,
        le=86_400,
        description="While rows flow, one line an interval says how many Kafka has got since the last line.",
    )


class Settings(BaseSettings):
    """Every setting. `loading.load` makes it. Tests make it from keyword arguments."""

    model_config = SettingsConfigDict(
        env_prefix="CDCD_", env_nested_delimiter="__", enable_decoding=False, extra="forbid", frozen=True
    )

    secrets_dir: str | None = Field(
        None,
        examples=["/run/secrets/cdcd"],
        description="A directory of files that each hold one value and are named like the setting: source__dsn. They "
        "override everything else. The environment variable CDCD_SECRETS_DIR sets it, too.",
    )
    source: SourceSettings
    snapshot: SnapshotSettings = Field(default_factory=SnapshotSettings)
    tables: TablesSettings = Field(default_factory=TablesSettings)
    avro: AvroSettings = Field(default_factory=AvroSettings)
    debezium: DebeziumSettings = Field(default_factory=DebeziumSettings)
    row: RowSettings = Field(default_factory=RowSettings)
    outbox: OutboxSettings = Field(default_factory=OutboxSettings)
    sink: SinkSettings
    spool: SpoolSettings = Field(default_factory=SpoolSettings)
    monitoring: MonitoringSettings = Field(default_factory=MonitoringSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    table: tuple[TableSettings, ...] = Field((), description="Entries about tables.")

    @model_validator(mode="after")
    def _has_secret(self) -> Self:
        if any(each.needs_secret for each in self.table):
            secret = self.tables.hash_secret
            if secret is None:
                raise ValueError("tables.hash_secret is not set, and a mask of [[table]] is a hash")
            if not _SECRET_MIN <= len(secret.encode()) <= _SECRET_MAX:
                raise ValueError(f"tables.hash_secret must have {_SECRET_MIN} to {_SECRET_MAX} bytes")
        return self

    @model_validator(mode="after")
    def _gets_outbox_messages(self) -> Self:
        if self.outbox.message_prefix is not None and not self.source.messages:
            raise ValueError("outbox.message_prefix is set, and source.messages is false: no logical message comes")
        if self.outbox.payload_subject is not None and self.avro.registry_url is None:
            raise ValueError("outbox.payload_subject is set, and avro.registry_url is not: no registry has the schemas")
        return self

    def column_rules(self) -> ColumnRules:
        """What [[table]] says, for one stream or one command."""
        rules = [rule for rule in (each.rule for each in self.table) if rule.says_something]
        names = self.topic_names()
        shared_topic = names.shared_topic if names.has_shared_topics else None
        return ColumnRules(rules, (self.tables.hash_secret or "").encode(), shared_topic)

    def snapshot_rules(self) -> SnapshotRules:
        """What [[table]] and snapshot.mode say of snapshots."""
        rules = [each.snapshot_rule for each in self.table]
        return SnapshotRules(rules, takes_others=self.snapshot.mode != "never", hours=self.snapshot.copy_hours)

    def topic_names(self) -> TopicNames:
        """The names of the topics. Raises SettingsError for names that cannot be used."""
        rules = [each.topic_rule for each in self.table]
        transactions = self.sink.format == "debezium" and self.debezium.provide_transaction_metadata
        return TopicNames(
            self.sink.prefix, self.sink.topic, rules, self.outbox.topic_parts, has_transactions=transactions
        )

    @cached_property
    def places(self) -> Places:
        """What the commands in hints leave open."""
        return Places(self.sink.bootstrap_servers, self.sink.prefix, self.source.slot, self.sink.client_properties)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take keyword arguments only. `loading` reads the other sources itself, and notes the origin of each value."""
        return (init_settings,)


NAMES: Final = SettingNames(Settings, "`cdcd config --reference`", "CDCD_")
"""The names of all settings, in the order of the file."""
