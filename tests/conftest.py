"""Loads the fixtures of the real servers for every test, and makes their modules importable.

The tests are imported by path (`--import-mode=importlib`), so that `cdcd` is the installed one unless PYTHONPATH says
otherwise; hence neither `tests/` nor `deploy/` is on sys.path by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "deploy")]

pytest_plugins = ["fix_postgres", "fix_kafka"]
