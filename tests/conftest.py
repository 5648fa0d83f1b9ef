"""Loads the fixtures of the real servers for every test, and makes their modules importable.

The tests are imported by path (`--import-mode=importlib`), so that `cdcd` is the installed one unless PYTHONPATH says
otherwise; hence `tests/` is not on sys.path by itself.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from hypothesis import settings

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

pytest_plugins = [
    "support.fix_aws",
    "support.fix_kafka",
    "support.fix_postgres",
    "support.fix_registry",
    "support.fix_spark",
    "support.variants",
]

# How long an example takes is the machine's affair: others may be busy on it.
settings.register_profile("cdcd", deadline=None)
settings.load_profile("cdcd")


def pytest_report_header() -> str:
    """Say which cdcd is tested: `.so` where it is the compiled one."""
    hot = importlib.util.find_spec("cdcd.avro.event_encoder")
    return f"cdcd: {hot.origin if hot else 'not installed'}"
