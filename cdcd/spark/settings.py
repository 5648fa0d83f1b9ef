"""What `cdcd spark` reads from its file: one file for all three jobs, config/mirror.toml shows it whole.

Before: a TOML file. After: `commands` passes the values on.
"""

from __future__ import annotations

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cdcd.errors import SettingsError

DSN_VARIABLE: Final = "CDCD_SPARK_DSN"
"""The environment variable that wins over `postgres.dsn`, so that no password stands in a file."""


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
    rows_max: int = Field(5_000_000, ge=1)
    parallel: int = Field(2, ge=1, le=64)
    interval_s: float = Field(30.0, ge=0, le=86_400)
    compact_every_runs: int = Field(0, ge=0)
    keep_runs: int = Field(10_000, ge=1)
    properties: dict[str, str] = Field(default_factory=dict)


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
    postgres: PostgresSettings = Field(default_factory=PostgresSettings)
    monitoring: MetricsSettings = Field(default_factory=MetricsSettings)
    spark: dict[str, str] = Field(default_factory=dict)


def load(path: str) -> SparkSettings:
    """Read the file. Raises SettingsError (the user's fault), which never shows a value: one may be secret."""
    try:
        content: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}", "Name another") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings file {path} is not TOML: {error}", "config/mirror.toml shows one") from error
    if DSN_VARIABLE in os.environ:
        content.setdefault("postgres", {})["dsn"] = os.environ[DSN_VARIABLE]
    try:
        return SparkSettings(**content)
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False)
    place = ".".join(str(part) for part in problem["loc"][:2])
    if problem["type"] != "extra_forbidden":
        raise SettingsError(f"{place}: {problem['msg'].lower()} (file {path})", "config/mirror.toml describes it")
    near = get_close_matches(place, _known(), n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else "config/mirror.toml lists every setting"
    raise SettingsError(f"There is no setting {place} (file {path})", hint)


def _known() -> list[str]:
    sections: dict[str, type[SparkSection]] = {
        "kafka": KafkaSettings,
        "mirror": MirrorSettings,
        "postgres": PostgresSettings,
        "monitoring": MetricsSettings,
    }
    return [*sections, "spark", *(f"{name}.{key}" for name, model in sections.items() for key in model.model_fields)]
