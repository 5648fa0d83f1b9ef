"""Logins as shared servers have them: full, over TLS, with SCRAM, by URL, by service, through a pooler.

`test_role_settings.py` has what roles and databases may set.
"""

from __future__ import annotations

import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import servers
import trustme
from psycopg import sql
from psycopg.conninfo import make_conninfo
from servers.processes import alive
from support.fix_postgres import Database
from support.stream import eventually

from cdcd.errors import CdcdError, PostgresUnavailable, RequestRejected, SettingsError
from cdcd.source.connection import Connection
from cdcd.source.session import Session

PASSWORD = "p@ss/w%rd 'ü\\"


@pytest.fixture(scope="module")
def server() -> Iterator[servers.PostgreSQL]:
    """Start a server with little room, with TLS, and with roles that log in in different ways."""
    made = servers.PostgreSQL(
        fsync=False,
        settings={
            "listen_addresses": "127.0.0.1,::1",
            "max_connections": "12",
            "superuser_reserved_connections": "2",
            "max_wal_senders": "1",
            "ssl": "on",
        },
    )
    folder = made.directory
    ca = trustme.CA()
    certificate, client = ca.issue_cert("localhost", "127.0.0.1"), ca.issue_cert("x", common_name="certified")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name, made_for in (("server", certificate), ("client", client)):
        made_for.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        made_for.private_key_pem.write_to_path(folder / f"{name}.key")
        (folder / f"{name}.key").chmod(0o600)
    if user := made._user():
        shutil.chown(folder / "server.key", user)
    made.settings |= {
        "ssl_ca_file": str(folder / "ca.pem"),
        "ssl_cert_file": str(folder / "server.pem"),
        "ssl_key_file": str(folder / "server.key"),
    }
    with made as server:
        hba = server.data / "pg_hba.conf"
        methods = "".join(
            f"{kind} {database} scram all scram-sha-256\n"
            f"{kind} {database} certified all scram-sha-256 clientcert=verify-full\n"
            for kind, database in (("hostssl", "all"), ("hostssl", "replication"))
        )
        hba.write_text(methods + "host all plain all scram-sha-256\n" + hba.read_text())
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            for role in ("scram", "certified", "plain"):
                made_role = sql.SQL("CREATE ROLE {} LOGIN REPLICATION PASSWORD {}")
                admin.execute(made_role.format(sql.Identifier(role), sql.Literal(PASSWORD)))
            admin.execute("SELECT pg_reload_conf()")
        with psycopg.connect(server.dsn()) as _:
            yield server


def secured(server: servers.PostgreSQL, user: str, **more: str) -> str:
    """A DSN that verifies the server, with the client's certificate."""
    folder = server.directory
    names = {"sslrootcert": "ca.pem", "sslcert": "client.pem", "sslkey": "client.key"}
    files = {parameter: str(folder / name) for parameter, name in names.items()}
    parts = {"password": PASSWORD, "sslmode": "verify-full", **files, **more}
    return make_conninfo(server.dsn(user=user), **parts)


def logged_in(dsn: str) -> None:
    """Check that both kinds of connections come about."""
    with Session(dsn) as session, connected(dsn) as walsender:
        assert session.rows("SELECT pg_is_in_recovery()") == [(False,)]
        assert walsender.identify().timeline == 1


@contextmanager
def connected(dsn: str) -> Iterator[Connection]:
    """A walsender; when the `with` is over, the server has its place free again."""
    with Connection(dsn) as walsender:
        pid = walsender.backend_pid
        yield walsender
    _wait_until_ended(pid)


def _wait_until_ended(backend_pid: int) -> None:
    """Wait until a process of the server, whose client has closed the connection, has ended and left its place."""
    eventually(lambda: not alive(backend_pid), f"end of the server's process {backend_pid}")


def refusal(dsn: str) -> CdcdError:
    with pytest.raises(CdcdError) as caught, Session(dsn) as session:
        session.rows("SELECT 1")
    assert PASSWORD not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("user", "more"),
    [
        ("scram", {}),
        ("scram", {"channel_binding": "require"}),
        ("scram", {"require_auth": "scram-sha-256"}),
        ("scram", {"ssl_min_protocol_version": "TLSv1.3"}),
        ("certified", {"channel_binding": "require", "sslcertmode": "require"}),
        ("scram", {"sslmode": "verify-ca", "host": "::1"}),
    ],
)
def test_verified_tls_with_scram_and_a_clients_certificate(
    server: servers.PostgreSQL, user: str, more: dict[str, str]
) -> None:
    logged_in(secured(server, user, **more))


@pytest.mark.parametrize(
    ("user", "more", "hint"),
    [
        ("plain", {"sslmode": "disable", "channel_binding": "require"}, "channel_binding"),
        ("postgres", {"channel_binding": "require"}, "channel_binding"),
        ("scram", {"require_auth": "md5"}, "require_auth"),
        ("postgres", {"require_auth": "scram-sha-256"}, "require_auth"),
        ("certified", {"sslcertmode": "disable"}, "sslcert"),
        ("scram", {"host": "::1"}, "sslrootcert"),  # the certificate is for other names
        ("scram", {"sslkey": "/nowhere"}, "sslkey"),
        ("plain", {"sslmode": "disable", "gssencmode": "require"}, "gssencmode"),
    ],
)
def test_a_login_that_stays_refused_names_what_to_correct(
    server: servers.PostgreSQL, user: str, more: dict[str, str], hint: str
) -> None:
    error = refusal(secured(server, user, **more))
    assert isinstance(error, RequestRejected), error
    assert hint in error.hint


def test_a_url_with_an_ipv6_address_and_escaped_characters(server: servers.PostgreSQL) -> None:
    query = "options=-c%20work_mem%3D1MB&application_name=a%20%22b%22&sslmode=disable"
    dsn = f"postgresql://plain:{quote(PASSWORD, safe='')}@[::1]:{server.port}/postgres?{query}"
    logged_in(dsn)
    with Session(dsn) as session:
        [row] = session.rows(
            "SELECT current_setting('work_mem'), current_setting('application_name'), host(inet_server_addr())"
        )
    assert row == ("1MB", 'a "b"', "::1")


@pytest.mark.parametrize("attributes", ["any", "primary", "read-write", "prefer-standby"])
def test_several_hosts_and_one_that_is_there(server: servers.PostgreSQL, attributes: str) -> None:
    logged_in(f"postgresql://postgres@127.0.0.2:1,[::1]:{server.port}/postgres?target_session_attrs={attributes}")


@pytest.mark.parametrize("attributes", ["standby", "read-only"])
def test_a_server_of_the_wrong_kind_may_become_the_right_one(server: servers.PostgreSQL, attributes: str) -> None:
    assert type(refusal(server.dsn(target_session_attrs=attributes))) is PostgresUnavailable


def test_a_service_file_names_the_server(
    server: servers.PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pg_service.conf"
    file.write_text(f"[shop]\nhost=127.0.0.1\nport={server.port}\nuser=postgres\ndbname=postgres\n[bad]\nnosuch=1\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    logged_in("service=shop")
    logged_in("postgresql://?service=shop")
    assert type(refusal("service=bad")) is SettingsError
    assert type(refusal("service=other")) is SettingsError


def _fill(stack: ExitStack, dsn: str) -> None:
    """Take connections until there is none. When the stack is closed, the server has their places free again."""
    with suppress(psycopg.OperationalError):
        while True:
            connection = psycopg.connect(dsn)
            stack.callback(_wait_until_ended, connection.info.backend_pid)
            stack.enter_context(connection)


def test_a_full_server_is_waited_for_and_lets_cdcd_in_again(server: servers.PostgreSQL) -> None:
    plain = server.dsn(user="plain", password=PASSWORD)
    with ExitStack() as stack:
        _fill(stack, plain)
        error = refusal(plain)
        assert type(error) is PostgresUnavailable
        assert "max_connections" in error.hint
        logged_in(server.dsn())  # a walsender has a place of its own, and a superuser a reserved one
        _fill(stack, server.dsn())
        assert "max_connections" in refusal(server.dsn()).hint
    logged_in(plain)


@pytest.mark.postgres_versions(16, "newest")
def test_reserved_connections_are_named_with_the_grant(postgres: servers.PostgreSQL, start_postgres: Any) -> None:
    server = start_postgres(postgres.version, settings={"max_connections": "8", "reserved_connections": "3"})
    with psycopg.connect(server.dsn(), autocommit=True) as admin, ExitStack() as stack:
        admin.execute("CREATE ROLE plain LOGIN REPLICATION")
        _fill(stack, server.dsn(user="plain"))
        error = refusal(server.dsn(user="plain"))
        assert type(error) is PostgresUnavailable
        statement = error.hint.removeprefix("Run: ").split(";")[0]
        admin.execute(statement.encode())
        with Session(server.dsn(user="plain")) as session:
            assert session.rows("SELECT 1") == [(1,)]


def test_a_server_without_a_free_walsender_is_waited_for(server: servers.PostgreSQL) -> None:
    with connected(server.dsn()), pytest.raises(PostgresUnavailable, match="no replication connection free"):
        Connection(server.dsn())
    with connected(server.dsn()) as free:
        assert free.identify().timeline == 1


# PgBouncer


@pytest.fixture(params=["", "options", "options, extra_float_digits, replication"])
def pooler(request: Any, database: Database) -> Iterator[str]:
    """Start PgBouncer before the database, which ignores these parameters of a login; return a DSN that leads to it."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/bin")
    if program is None:
        pytest.skip("PgBouncer is not installed")
    port = servers.free_port()
    folder = database.server.directory / f"pgbouncer-{port}"
    folder.mkdir()
    user = database.server._user()
    (folder / "users").write_text('"postgres" ""\n')
    ignored = f"ignore_startup_parameters = {request.param}\n" if request.param else ""
    (folder / "ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={database.server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = trust\nauth_file = {folder}/users\nunix_socket_dir =\n{ignored}"
    )
    group = pwd.getpwnam(user).pw_gid if user else None
    with subprocess.Popen(
        [program, str(folder / "ini")], stderr=subprocess.DEVNULL, user=user, group=group,
        extra_groups=[] if user else None,
    ) as process:  # fmt: skip
        dsn = make_conninfo(database.dsn, port=port)
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(dsn).close()
                break
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield dsn
        process.kill()


@pytest.mark.parametrize("kind", [Session, Connection])
def test_a_pooler_in_the_way_is_named(pooler: str, kind: type[Session | Connection]) -> None:
    with pytest.raises(RequestRejected, match="goes through a connection pooler") as caught:
        _ask(kind, pooler)
    assert "PostgreSQL's own host and port" in caught.value.hint


def _ask(kind: type[Session | Connection], dsn: str) -> None:
    with kind(dsn) as client:
        assert isinstance(client, Session), "the login of a walsender is refused"
        client.rows("SELECT 1")
