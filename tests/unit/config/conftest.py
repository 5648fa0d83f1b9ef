from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cdcd.config.loading import Loaded, load

MINIMAL = '[source]\ndsn = "host=db password=hunter2"\n[sink]\nbootstrap_servers = "k:9092"\n'


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("CDCD_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def minimal() -> str:
    """Give the shortest file that loads; its dsn holds the password `hunter2`."""
    return MINIMAL


@pytest.fixture
def load_text(tmp_path: Path) -> Callable[..., Loaded]:
    def load_it(text: str = MINIMAL) -> Loaded:
        path = tmp_path / "cdcd.toml"
        path.write_text(text)
        return load(str(path))

    return load_it
