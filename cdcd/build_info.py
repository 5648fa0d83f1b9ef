"""The build of this installation: whether the hot modules are compiled, and the versions of the libraries.

Before: the build (.build/compile_hook.py) has compiled the hot modules, or not.
After: `cdcd --version` and /metrics show it.
"""

from __future__ import annotations

import platform
from importlib.util import find_spec

from cdcd import __version__


def build() -> str:
    """`compiled` or `pure`. A pure build has the same results, but the hot modules are about ten times slower.

    One of them is looked for, and not imported: it would bring all codecs.
    """
    hot = find_spec("cdcd.avro.event_encoder")
    return "pure" if hot is not None and str(hot.origin).endswith(".py") else "compiled"


def describe() -> str:
    """One line for bug reports: the versions of cdcd, Python and the libraries."""
    import confluent_kafka
    import psycopg.pq

    libpq = psycopg.pq.version()
    return (
        f"cdcd {__version__} ({build()}), Python {platform.python_version()}, "
        f"psycopg {psycopg.__version__} (libpq {libpq // 10000}.{libpq % 10000}), "
        f"confluent-kafka {confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"
    )
