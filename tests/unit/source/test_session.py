"""A DSN that cannot be read: the error says which word is wrong, and nothing that could be part of a password."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable, Iterator
from threading import Thread

import psycopg
import pytest

from cdcd.errors import PostgresUnavailable, RequestRejected, SettingsError
from cdcd.source.session import (
    PINNED,
    Locked,
    connect,
    parameters,
    pinning_commands,
    pinning_statement,
    statement_error,
)


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
        (psycopg.errors.LockNotAvailable, Locked),
        (psycopg.errors.LockNotAvailable, PostgresUnavailable),
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


class FakeServer:
    """Lets one client in, as a server of `version` does; its only answer is a row with `search_path`."""

    def __init__(self, version: str, search_path: str = "") -> None:
        self._version = version
        self._row = search_path.encode()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.startup: dict[bytes, bytes] = {}
        self.queries: list[bytes] = []
        self._thread = Thread(target=self._serve)
        self._thread.start()

    @property
    def dsn(self) -> str:
        return (
            f"host=127.0.0.1 port={self._listening.getsockname()[1]} user=u dbname=d sslmode=disable gssencmode=disable"
        )

    def close(self) -> None:
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        with self._listening.accept()[0] as client, client.makefile("rb") as reading:
            words = reading.read(struct.unpack(">i", reading.read(4))[0] - 4)[4:].split(b"\0")
            self.startup = dict(zip(words[::2], words[1::2], strict=False))
            version = b"server_version\0" + self._version.encode() + b"\0"
            ready = _message(b"Z", b"I")
            client.sendall(_message(b"R", bytes(4)) + _message(b"S", version) + ready)
            while (kind := reading.read(1)) == b"Q":
                self.queries.append(reading.read(struct.unpack(">i", reading.read(4))[0] - 4))
                column = b"c\0" + struct.pack(">ihihih", 0, 0, 25, -1, -1, 0)
                row = struct.pack(">hi", 1, len(self._row)) + self._row
                client.sendall(
                    _message(b"T", struct.pack(">h", 1) + column)
                    + _message(b"D", row)
                    + _message(b"C", b"SELECT 1\0")
                    + ready
                )
            assert kind in (b"X", b"")


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeServer]]:
    made: list[FakeServer] = []

    def serve(*arguments: str) -> FakeServer:
        made.append(FakeServer(*arguments))
        return made[-1]

    yield serve
    for each in made:
        each.close()


def test_a_server_that_is_too_old_is_told_so_and_asked_nothing(serve: Callable[..., FakeServer]) -> None:
    server = serve("13.22")
    with pytest.raises(RequestRejected, match=r"PostgreSQL 13\.22, and cdcd needs 14 or later"):
        connect(parameters(server.dsn, "t"))
    assert server.queries == []
    unknown = (b"idle_session_timeout", b"transaction_timeout")
    assert not [name for name in unknown if name in server.startup[b"options"]], "13 would refuse the login for it"


@pytest.mark.parametrize(
    ("version", "pinned"),
    [("14.1", {"idle_session_timeout"}), ("18.6", {"idle_session_timeout", "transaction_timeout"})],
)
def test_a_timeout_is_turned_off_once_the_server_is_known_to_have_it(
    serve: Callable[..., FakeServer], version: str, pinned: set[str]
) -> None:
    server = serve(version)
    connect(parameters(server.dsn, "t")).close()
    [query] = server.queries
    assert set(re.findall(r"'(\w+_timeout)', '0'", query.decode())) == pinned


def test_parameters_that_a_pooler_does_not_pass_on_are_noticed(serve: Callable[..., FakeServer]) -> None:
    with pytest.raises(RequestRejected, match="goes through a connection pooler"):
        connect(parameters(serve("18.6", '"$user", public').dsn, "t"))


def test_a_statement_and_the_commands_pin_the_same() -> None:
    for version in (140_000, 170_000):
        commands = dict(re.findall(r"SET (\w+) = (\d)", pinning_commands(version)))
        assert commands == dict(re.findall(r"\('(\w+)', '(\d)'", pinning_statement(version)))


def test_the_dsn_may_choose_a_role_and_nothing_that_is_pinned() -> None:
    options = parameters("host=h options='-c role=app -c statement_timeout=5s'", "t")["options"]
    assert options.index("role=none") < options.index("role=app")
    assert options.index("statement_timeout=5s") < options.index("statement_timeout=0")
    assert r"default_transaction_isolation=read\ committed" in options
    assert all(f"-c {name}=" in options for name, _ in PINNED)


@pytest.mark.parametrize(
    ("dsn", "hint"),
    [
        ("hots=localhost dbname=shop", "Did you mean host?"),
        ("host=localhost dbnam=shop", "Did you mean dbname?"),
        ("postgresql://u@h/db?sslmod=require", "Did you mean sslmode?"),
        ("host=x qqqqqqqq=1", "Write it as postgresql://user@host:5432/dbname"),
    ],
)
def test_a_parameter_that_libpq_does_not_know_is_named_with_the_nearest(dsn: str, hint: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parameters(dsn, "cdcd")
    assert refused.value.hint == hint
