"""A DSN that cannot be read: the error says which word is wrong, and nothing that could be part of a password."""

from __future__ import annotations

import os
import socket
import struct
from threading import Thread

import psycopg
import pytest

from cdcd.errors import PostgresUnavailable, RequestRejected, SettingsError
from cdcd.source.session import parameters, statement_error


def _said(dsn: str) -> str:
    with pytest.raises(SettingsError) as raised:
        parameters(dsn, "cdcd")
    return raised.value.message


@pytest.mark.parametrize(
    ("dsn", "words"),
    [
        ("hots=localhost dbname=shop", 'invalid connection option "hots"'),
        ("host=localhost passwort=secret", 'invalid connection option "passwort"'),
        ("host localhost", 'missing "=" after "host"'),
        ("host='localhost password=secret", "unterminated quoted string"),
        ("postgresql://cdc:secret@localhost/shop?sslmod=require", 'invalid URI query parameter: "sslmod"'),
    ],
)
def test_the_word_that_is_wrong_is_named(dsn: str, words: str) -> None:
    assert words in _said(dsn)
    assert "secret" not in _said(dsn)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=localhost password=two secret",
        "host=localhost password=two secret=words",
        'password=a"b "secret" c',
        "postgresql://cdc:a%zzsecret@localhost/shop",
        "postgresql://cdc:a secret@localhost/shop",
        "postgresql://cdc:a/b?secret=1@localhost/shop",
        "postgresql://localhost/shop?password=a&secret=b",
        "postgresql://cdc:secret@[::1/shop",
    ],
)
def test_what_may_be_part_of_a_password_is_not_repeated(dsn: str) -> None:
    assert _said(dsn) == "source.dsn cannot be read"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.SerializationFailure, PostgresUnavailable),  # how a standby's recovery cancels a question
        (psycopg.errors.DeadlockDetected, PostgresUnavailable),
        (psycopg.errors.AdminShutdown, PostgresUnavailable),
        (psycopg.errors.InsufficientPrivilege, RequestRejected),
    ],
)
def test_what_passes_by_itself_is_asked_again(error: type[psycopg.Error], kind: type[Exception]) -> None:
    assert isinstance(statement_error(error("canceling statement due to conflict with recovery")), kind)


def test_the_environment_does_not_undo_the_pinned_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTZ", "Europe/Berlin")
    monkeypatch.setenv("PGDATESTYLE", "German")
    sent: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                while not sent:
                    packet = connection.recv(struct.unpack(">i", connection.recv(4))[0] - 4)
                    if packet[:2] == b"\x04\xd2":  # SSL, GSS: no
                        connection.send(b"N")
                    else:
                        sent.extend(packet[4:].lower().split(b"\0"))

        thread = Thread(target=answer)
        thread.start()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(**parameters(f"postgresql://u@127.0.0.1:{listening.getsockname()[1]}/d", "t"))
        thread.join()
    assert b"timezone" not in sent
    assert b"datestyle" not in sent
    assert "PGTZ" not in os.environ
