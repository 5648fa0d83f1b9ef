"""`python -m cdcd` runs the command `cdcd`."""

from __future__ import annotations

import sys

from cdcd.cli.main import main

sys.exit(main())
