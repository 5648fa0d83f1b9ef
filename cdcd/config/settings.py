"""What a user can set, with units, bounds and defaults; the edge of the program, and only its edge.

Before: a TOML file, the environment and a secrets directory, read by `loading`.
After: `supervisor` and the commands of `cli.main` read the values and pass plain arguments on: no room sees this
module.

Every field's description is its line in `cdcd config --reference` and in config/cdcd.toml (a test keeps those equal),
so it is written for the person who edits that file. Names end in their unit; every buffer has a bound.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

Port = Annotated[int, Field(ge=0, le=65535)]


def _slot_name(name: str) -> str:
    if not (1 <= len(name) <= 63 and all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in name)):
        raise ValueError("must be 1 to 63 of the characters a-z, 0-9 and _, as PostgreSQL asks of a slot's name")
    return name


def _table_pattern(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        schema, dot, table = pattern.partition(".")
        if not (schema and dot and table):
            raise ValueError(f"must be written as schema.table, where * stands for any name, not {pattern!r}")
    return patterns


class Section(BaseModel):
    """One table of the TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceSettings(Section):
    """PostgreSQL: where the changes come from."""

    dsn: str = Field(
        repr=False,
        examples=["host=localhost dbname=shop user=cdcd"],
        description="How to reach the database, as libpq takes it: a conninfo string or a postgresql:// URI. "
        "Required. Keep the password out of it: in ~/.pgpass, in PGPASSWORD, or the whole of it in a secrets file.",
    )
    slot: Annotated[str, AfterValidator(_slot_name)] = Field(
        "cdcd", description="The logical replication slot. One running daemon a slot; a second one waits for it."
    )
    publication: str = Field(
        "cdcd",
        min_length=1,
        max_length=63,
        description="The publication that says which tables and operations to send.",
    )
    tables: Annotated[tuple[str, ...], AfterValidator(_table_pattern)] = Field(
        ("public.*",),
        min_length=1,
        description="Which tables a publication that cdcd creates holds, as schema.table; * stands for any name. "
        "An existing publication is used as it is.",
    )
    create: bool = Field(
        True,
        description="Create the publication and the slot if they are missing. With false, missing ones are an error.",
    )
    binary: Literal["auto"] | bool = Field(
        "auto",
        description="Ask for values in PostgreSQL's binary form, which is several times faster. "
        '"auto" falls back to text while a published column has a type whose binary form cdcd does not know.',
    )
    streaming: Literal["auto", "off", "on", "parallel"] = Field(
        "auto",
        description="Let the server send large transactions while they are in progress; cdcd spools them until they "
        'commit. "auto" takes the best that the server has: "parallel" from PostgreSQL 16, else "on". With "off" the '
        "server keeps them on its own disk, and sends each when it has committed.",
    )
    two_phase: bool = Field(
        False,
        description="Receive PREPARE TRANSACTION when it happens (PostgreSQL 15 and up); the rows are published at "
        "COMMIT PREPARED all the same. A slot that has it once keeps it.",
    )
    failover: bool = Field(
        False,
        description="Make the slot one that physical standbys keep in sync (PostgreSQL 17 and up), so that the stream "
        "goes on after a failover; with several hosts and target_session_attrs=read-write in the dsn.",
    )
    on_slot_lost: Literal["stop", "resnapshot"] = Field(
        "stop",
        description="What to do when the slot is gone, or lacks changes that Kafka lacks: they are lost for good. "
        '"stop" says so and ends; "resnapshot" makes a new one, says so in the progress, and copies all tables afresh.',
    )
    messages: bool = Field(
        True, description="Publish logical decoding messages (pg_logical_emit_message) to {prefix}.messages."
    )
    origin: Literal["any", "none"] = Field(
        "any",
        description='"none" leaves out changes that were themselves replicated from elsewhere (PostgreSQL 16 and up).',
    )
    application_name: str = Field(
        "cdcd",
        max_length=63,
        description="Its name in pg_stat_replication; in synchronous_standby_names it makes commits wait for Kafka.",
    )
    status_interval_s: float = Field(
        10,
        ge=0.1,
        le=3600,
        description="How often to tell the server what is durable; a third of its wal_sender_timeout if that is less.",
    )


class SnapshotSettings(Section):
    """The copy of what the tables hold before the first change."""

    mode: Literal["initial", "never", "only"] = Field(
        "initial",
        description="Publish the rows that a table has as events with op r, once, before its changes; a table that is "
        'published later, too. "never" publishes changes only. "only" ends when the rows are published; the slot '
        "keeps what changes from then on.",
    )
    workers: int = Field(2, ge=1, le=64, description="Connections that read tables at the same time.")
    chunk_bytes: int = Field(
        16 * 1024**2,
        ge=8192,
        le=100 * 1024**3,
        description="What one of them reads of a table in one piece. Whole pieces survive a crash.",
    )


class AvroSettings(Section):
    """The form of events."""

    registry_url: str | None = Field(
        None,
        repr=False,
        examples=["http://localhost:8081"],
        description="A Confluent-compatible schema registry. Without one, schemas travel on {prefix}.schemas.",
    )
    registry_config: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        examples=[{"basic.auth.user.info": "user:password"}],
        description="More properties of the registry client, by the names that confluent-kafka gives them. Unless they "
        "are among these, timeout is 5 (seconds) and max.retries 1: the stream waits meanwhile.",
    )
    numeric: Literal["decimal", "string"] = Field(
        "decimal",
        description="How numeric(p,s) travels: as Avro decimal, or as a string. numeric without (p,s) is a string.",
    )


class SinkSettings(Section):
    """Kafka: where the events go."""

    bootstrap_servers: str = Field(
        min_length=1,
        examples=["localhost:9092"],
        description="Brokers to ask first, host:port, separated by commas. Required.",
    )
    prefix: str = Field(
        "cdcd", description="Opens the name of every topic, and the transactional.ids ({prefix}-{slot}, and with .2)."
    )
    topic: str = Field(
        "{prefix}.{schema}.{table}", description="The topic of a table's events, from {prefix}, {schema} and {table}."
    )
    partitions: int = Field(
        4, ge=1, le=10_000, description="Partitions of the topics that cdcd creates. An existing topic keeps its own."
    )
    replication_factor: int = Field(
        1,
        ge=1,
        le=100,
        description="Replicas of the topics that cdcd creates. 3 for a cluster that must survive a broker.",
    )
    topic_config: dict[str, str] = Field(
        default_factory=dict,
        examples=[{"retention.ms": "604800000", "compression.type": "producer"}],
        description="Properties of the tables' topics that cdcd creates, by Kafka's own names. Its own topics take "
        "min.insync.replicas from here.",
    )
    tombstones: bool = Field(
        False, description="Follow each delete with a record of the same key and no value, for compacted topics."
    )
    delivery: Literal["exactly_once", "at_least_once"] = Field(
        "exactly_once",
        description='"at_least_once" uses no Kafka transactions: rows may come twice after a restart, and a '
        "PostgreSQL transaction becomes visible row by row.",
    )
    on_unpublishable: Literal["stop", "park"] = Field(
        "stop",
        description="What to do when events of a table cannot be published: a record is too large for its topic, or "
        'the registry refuses a schema. "stop" ends the daemon; "park" sends that table\'s events, complete and in '
        "order, to {prefix}.parked until `cdcd unpark TABLE`, while the others go on.",
    )
    transaction_rows_max: int = Field(
        100_000, ge=1, le=100_000_000, description="Commit the Kafka transaction once it holds this many events."
    )
    transaction_bytes_max: int = Field(
        64 * 1024**2,
        ge=1024,
        le=10 * 1024**3,
        description="Commit the Kafka transaction once its events are this large.",
    )
    transaction_linger_ms: int = Field(
        250,
        ge=1,
        le=60_000,
        description="Commit the Kafka transaction once it has been open for so long in an unbroken backlog; the first "
        "one after a start after 20 ms at most. When there is nothing more to read, or a COMMIT waits for cdcd, it is "
        "committed at once, whatever this says.",
    )
    queue_bytes_max: int = Field(
        32 * 1024**2,
        ge=1024**2,
        le=10 * 1024**3,
        description="Encoded events that may wait for the producer. When they are this large, reading pauses.",
    )
    librdkafka: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        repr=False,
        examples=[{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "cdcd"}],
        description="Any property of librdkafka, by its own name; it wins over what cdcd sets, but for those that a "
        "promise rests on, which are refused. "
        "Passwords belong in a secrets file: sink__librdkafka__sasl.password.",
    )


class SpoolSettings(Section):
    """Where transactions wait that may yet be rolled back."""

    directory: str | None = Field(
        None,
        examples=["/var/lib/cdcd/spool"],
        description="A directory for what does not fit into memory; a subdirectory named after the slot and its server "
        "is cdcd's alone, and emptied at every start. Without it: cdcd-spool in the system's directory for temporary "
        "files.",
    )
    memory_bytes: int = Field(
        64 * 1024**2,
        ge=1024**2,
        le=10 * 1024**3,
        description="Spooled rows that are kept in memory, over all transactions; beyond, the largest goes to disk.",
    )
    bytes_max: int = Field(
        100 * 1024**3,
        ge=1024**2,
        le=100 * 1024**4,
        description="What the spool may take of the disk. When it is full, large transactions wait on the server's "
        "own disk instead, until cdcd is started anew.",
    )


class MonitoringSettings(Section):
    """The HTTP port for Prometheus, Kubernetes and people."""

    host: str = Field("0.0.0.0", description="The address to listen on.")  # noqa: S104  # scraped from other machines
    port: Port = Field(
        9478,
        description="The port of /metrics, /healthz, /readyz, /availablez and /. 0 takes a free one and logs it.",
    )
    stalled_after_s: float = Field(
        120,
        ge=1,
        le=86_400,
        description="/healthz fails when work has waited for so long at a stage where nothing moves: the loop, the "
        "server's answers, the way to Kafka, or a stream that does not come about again.",
    )


class LogSettings(Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description="The least severe level that is written. debug adds tracebacks; row values are never logged.",
    )
    format: Literal["text", "json"] = Field("text", description="text for people, json for one object a line.")


class Settings(BaseSettings):
    """Every setting. Made by `settings_sources.load`; made by hand in tests, from keyword arguments only."""

    model_config = SettingsConfigDict(
        env_prefix="CDCD_", env_nested_delimiter="__", enable_decoding=False, extra="forbid", frozen=True
    )

    secrets_dir: str | None = Field(
        None,
        examples=["/run/secrets/cdcd"],
        description="A directory of files that each hold one value, named like the setting: source__dsn. "
        "They win over everything else. The environment variable CDCD_SECRETS_DIR names it, too.",
    )
    source: SourceSettings
    snapshot: SnapshotSettings = Field(default_factory=SnapshotSettings)
    avro: AvroSettings = Field(default_factory=AvroSettings)
    sink: SinkSettings
    spool: SpoolSettings = Field(default_factory=SpoolSettings)
    monitoring: MonitoringSettings = Field(default_factory=MonitoringSettings)
    log: LogSettings = Field(default_factory=LogSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only keyword arguments: `loading` reads the other sources itself, to remember which said what."""
        return (init_settings,)


SECTIONS: dict[str, type[Section]] = {
    "source": SourceSettings,
    "snapshot": SnapshotSettings,
    "avro": AvroSettings,
    "sink": SinkSettings,
    "spool": SpoolSettings,
    "monitoring": MonitoringSettings,
    "log": LogSettings,
}
"""The TOML tables in the order of the file."""

FREE_FORM = frozenset({"avro.registry_config", "sink.topic_config", "sink.librdkafka"})
"""Settings whose keys are somebody else's vocabulary, and so are not checked here."""

JSON_OUTSIDE_THE_FILE = FREE_FORM | {"source.tables"}
"""Settings that are no single value: the environment and secret files give them as JSON."""


def known_keys(section: str = "") -> list[str]:
    """Every setting (of one section, if named) as `section.name`, in the order of the file."""
    return [
        *([] if section else ["secrets_dir"]),
        *(f"{s}.{name}" for s, model in SECTIONS.items() if section in ("", s) for name in model.model_fields),
    ]
