"""Judges whether the schema registry answers. It sends one request.

Before: `check` has the settings.
After: `check` passes the finding on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdcd.errors import SettingsError, without_password
from cdcd.preflight.findings import Finding, error, of_error, ok
from cdcd.schema_registry_client import registry_client
from cdcd.terminal.text_format import plural


def judge(url: str, config: Mapping[str, Any]) -> Finding:
    """Ask the schema registry for its subjects: every registry answers this request."""
    try:
        subjects = registry_client({"url": url, **config}).get_subjects()
    except SettingsError as failure:
        return of_error("registry", failure)
    except Exception as failure:  # noqa: BLE001  # the client also raises errors of its HTTP library
        hint = "Check avro.registry_url and avro.registry_config"
        return error("registry", f"The schema registry does not answer: {without_password(str(failure))}", hint)
    return ok("registry", f"The schema registry answers, {plural(len(subjects), 'subject')}")
