"""The settings of `cdcd spark`: one TOML file for all its commands. deploy/spark/mirror.toml shows every setting.

Before: `cli` has the file's name. After: `commands` passes the values on.
"""

from __future__ import annotations

import os
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from cdcd.config.layers import Layers, SettingNames, from_file
from cdcd.spark.arguments import TableList

DSN_VARIABLE: Final = "CDCD_SPARK_DSN"
"""This environment variable overrides `postgres.dsn`, so that no password has to stand in a file."""


_Kind: TypeAlias = Literal["mirror", "changelog", "scd2"]


class SparkSection(BaseModel):
    """One table of the TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(SparkSection):
    """The topics."""

    bootstrap_servers: str = Field(min_length=1)
    prefix: str = "cdcd"
    topic: str = "{prefix}.{schema}.{table}"
    slot: str | None = None
    registry_url: str | None = None
    properties: dict[str, str] = Field(default_factory=dict)


class MirrorSettings(SparkSection):
    """The tables in the lake."""

    tables: tuple[str, ...] = ("*",)
    catalog: str = Field(min_length=1)
    format: Literal["delta", "iceberg"] = "delta"
    name: str = "mirror"
    deletes: Literal["hard", "soft"] = "hard"
    schema_changes: Literal["stop", "follow"] = "stop"
    table_errors: Literal["quarantine", "stop"] = "quarantine"
    rows_max: int = Field(5_000_000, ge=1)
    parallel: int = Field(4, ge=1, le=64)
    interval_s: float = Field(30.0, ge=0, le=86_400)
    compact_every_runs: int = Field(100, ge=0)
    keep_runs: int = Field(10_000, ge=1)
    keep_days: int = Field(7, ge=7, le=3650)
    properties: dict[str, str] = Field(default_factory=dict)
    views: str = ""
    tags: bool = False
    table_names: Literal["lower", "escaped", "postgresql"] = "lower"


class TablesSettings(SparkSection):
    """What holds for some tables: each [[tables]] is an entry."""

    match: str = Field(min_length=1)
    exclude: bool | None = None
    target: str | None = None
    kind: _Kind | tuple[_Kind, ...] | None = None
    deletes: Literal["hard", "soft"] | None = None
    schema_changes: Literal["stop", "follow"] | None = None
    location: str | None = None
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    order_by: tuple[str, ...] | None = None
    properties: dict[str, str] | None = None


class PostgresSettings(SparkSection):
    """The database, for `snapshot` and `verify`."""

    dsn: str = Field("", repr=False)
    publication: str = "cdcd"
    parallelism: int = Field(8, ge=1, le=1024)
    timeout_s: float = Field(120.0, ge=1, le=86_400)


class MetricsSettings(SparkSection):
    """The metrics of `cdcd spark mirror`."""

    port: int = Field(0, ge=0, le=65535)


class SparkSettings(SparkSection):
    """The whole file."""

    kafka: KafkaSettings
    mirror: MirrorSettings | None = None
    tables: tuple[TablesSettings, ...] = ()
    postgres: PostgresSettings = Field(default_factory=PostgresSettings)
    monitoring: MetricsSettings = Field(default_factory=MetricsSettings)
    spark: dict[str, str] = Field(default_factory=dict)

    @property
    def mirrored(self) -> TableList:
        """The mirror's tables."""
        return TableList(("*",) if self.mirror is None else self.mirror.tables, self.tables)


_NAMES: Final = SettingNames(SparkSettings, "cdcd files spark/mirror.toml")


def load(path: str) -> SparkSettings:
    """Read the file. Raises SettingsError (the user's fault), which never shows a value: it may be secret."""
    layers = Layers(_NAMES)
    layers.add(from_file(path, _NAMES))
    if DSN_VARIABLE in os.environ:
        layers.add([("postgres.dsn", os.environ[DSN_VARIABLE], f"environment {DSN_VARIABLE}")])
    return layers.validated().settings
