from __future__ import annotations

import io

import pytest

from cdcd import __version__
from cdcd.cli.commands.check import check_lines, summary
from cdcd.preflight.findings import Finding, Level, ok
from cdcd.terminal.screen import has_colour


def test_a_finding_is_one_line_that_opens_with_its_level() -> None:
    finding = Finding(Level.ERROR, "wal_level", "wal_level is replica", "Run: ALTER SYSTEM")
    assert check_lines(finding, colour=False) == ["error    wal_level is replica. Run: ALTER SYSTEM\n"]
    assert "".join(check_lines(finding, colour=True)).startswith("\x1b[31merror")


def test_the_last_line_says_what_answered_how_much_was_found_and_whether_the_daemon_would_run() -> None:
    server, brokers = ok("server", "", seen="PostgreSQL 18.6"), ok("brokers", "", seen="Kafka (3 brokers)")
    began = f"cdcd {__version__}, PostgreSQL 18.6, Kafka (3 brokers): "
    assert summary([server, brokers]) == f"{began}2 findings. cdcd run would work"
    warning, error = Finding(Level.WARNING, "", ""), Finding(Level.ERROR, "", "")
    assert summary([server, brokers, warning]) == f"{began}3 findings, 1 warning. cdcd run would work"
    assert summary([error, error, warning]) == (
        f"cdcd {__version__}: 3 findings, 2 errors, 1 warning. cdcd run would not work"
    )


def test_the_last_line_says_that_findings_about_a_server_that_was_not_seen_are_missing() -> None:
    server = Finding(Level.ERROR, "server", "refused", unseen="PostgreSQL")
    brokers = Finding(Level.ERROR, "brokers", "refused", unseen="Kafka")
    assert summary([server]).endswith(
        "cdcd run would not work. PostgreSQL could not be looked at: run check again after this"
    )
    assert ". PostgreSQL and Kafka could not be looked at:" in summary([server, brokers])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_a_terminal_whose_user_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert has_colour(Terminal())
    assert not has_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colour(Terminal())
