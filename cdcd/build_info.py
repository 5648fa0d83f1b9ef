"""Whether this installation runs the hot modules compiled, and with which libraries: `--version` and /metrics say it.

Before: the build (.build/compile_hook.py) compiled the hot modules, or did not.
After: `cli.main` and `supervisor` tell.
"""

from __future__ import annotations

import platform
from importlib.metadata import version

import cdcd.avro.event_encoder
from cdcd import __version__


def build() -> str:
    """`compiled`, or `pure`: then the hot modules run as Python, some ten times slower, with the same results."""
    return "pure" if cdcd.avro.event_encoder.__file__.endswith(".py") else "compiled"


def describe() -> str:
    """One line that belongs into every bug report."""
    import confluent_kafka
    import psycopg.pq

    libpq = psycopg.pq.version()
    return (
        f"cdcd {__version__} ({build()}), Python {platform.python_version()}, "
        f"psycopg {psycopg.__version__} (libpq {libpq // 10000}.{libpq % 10000}), "
        f"confluent-kafka {version('confluent-kafka')} (librdkafka {confluent_kafka.libversion()[0]})"
    )
