"""`python -m cdcd` runs the command `cdcd`."""

from __future__ import annotations

from cdcd.cli.main import program

program()
