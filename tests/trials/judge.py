"""Looks whether each planted fault is mended, at the servers and with cdcd's own commands.

Before: `faults` wrote what it planted. After: a line for each fault.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from support.daemon import command, environment


def judge(here: Path, answers: Path) -> int:
    """Print a line for each fault; return 0 if all are mended."""
    facts = json.loads(answers.read_text())
    looks = Looks(here, facts)
    checks: dict[str, list[Callable[[], str]]] = {
        "wrong grant": [looks.grant, lambda: looks.verify("cdcd", "public.reviews")],
        "full WAL limit": [looks.limit, lambda: looks.streams("cdcd"), lambda: looks.verify("cdcd")],
        "parked table": [looks.parked, lambda: looks.verify("cdcd", "public.orders")],
        "expired certificate": [looks.certificate],
        "dropped slot": [lambda: looks.streams("cdcd_billing"), lambda: looks.verify("billing")],
    }
    mended = 0
    for name, parts in checks.items():
        why = next((said for part in parts if (said := part())), "")
        mended += not why
        print(f"{name}: {'not mended: ' + why if why else 'mended'}", flush=True)
    print(f"{mended} of {len(checks)} are mended")
    return 0 if mended == len(checks) else 1


class Looks:
    """Each look returns what is still wrong, or nothing."""

    def __init__(self, here: Path, facts: dict[str, Any]) -> None:
        self._here, self._facts = here, facts

    def grant(self) -> str:
        """Whether cdcd may read the new table."""
        has = self._value("SELECT has_table_privilege('cdcd', 'public.reviews', 'SELECT')")
        return "" if has else "cdcd may not read public.reviews"

    def limit(self) -> str:
        """Whether PostgreSQL keeps more WAL than when it gave up the slot."""
        limit = self._value("SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size'")
        return "" if limit == -1 or limit > self._facts["wal_limit_mb"] else f"max_slot_wal_keep_size is {limit} MB"

    def streams(self, slot: str) -> str:
        """Whether a daemon streams from the slot."""
        query = "SELECT active AND wal_status <> 'lost' FROM pg_replication_slots WHERE slot_name = %s"
        return "" if self._value(query, slot) else f"no daemon streams from the slot {slot}"

    def parked(self) -> str:
        """Whether no table of both daemons is parked."""
        for name in ("cdcd", "billing"):
            done = self._cdcd(name, "unpark", "--json")
            if done.returncode != 0 or '"table"' in done.stdout:
                return (done.stdout + done.stderr).strip().splitlines()[-1]
        return ""

    def certificate(self) -> str:
        """Whether the certificate is valid now, the CA signed it, and the key is its own."""
        here = self._here
        done = _run("openssl", "verify", "-CAfile", str(here / "ca.pem"), str(here / "cdcd.crt"))
        if done.returncode != 0:
            return done.stderr.strip().splitlines()[-2]
        certified = _run("openssl", "x509", "-in", str(here / "cdcd.crt"), "-noout", "-pubkey").stdout
        own = _run("openssl", "pkey", "-in", str(here / "cdcd.key"), "-pubout").stdout
        return "" if certified == own else "the key does not fit the certificate"

    def verify(self, name: str, *tables: str) -> str:
        """Whether topics and tables are equal."""
        done = self._cdcd(name, "verify", *tables)
        if done.returncode == 0:
            return ""
        differing = [line for line in done.stdout.splitlines() if line and not line.endswith(", equal")]
        return (differing or done.stderr.strip().splitlines())[-1]

    def _cdcd(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the user's settings, whose paths are others here."""
        seen_as, here = self._facts["seen_as"], str(self._here)
        settings = self._here / f"{name}.toml"
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as translated:
            translated.write(settings.read_text().replace(seen_as, here))
            translated.flush()
            return _run(*command(), words[0], "--config", translated.name, *words[1:])

    def _value(self, query: str, *parameters: str) -> Any:
        with psycopg.connect(self._facts["dsn"], autocommit=True) as connection:
            row = connection.execute(query.encode(), parameters or None).fetchone()
            return row[0] if row else None


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=180, env=environment())
