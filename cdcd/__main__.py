"""`python -m cdcd`: the same as the installed command `cdcd`."""

from __future__ import annotations

import sys

from cdcd.cli.main import main

sys.exit(main())
