"""A fixture of a real schema registry, started on first use and ended with the session.

Before: `servers.registry` starts it.
After: every test that asks for `schema_registry`. Subjects begin with a test's own prefix, so tests share it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.registry import SchemaRegistry


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[SchemaRegistry]:
    """Return the session's registry. Tests must leave it running."""
    pytest.importorskip("confluent_kafka.schema_registry", reason="needs the extra `registry`")
    with SchemaRegistry() as server:
        yield server
