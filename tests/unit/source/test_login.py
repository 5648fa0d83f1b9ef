"""A password is made when a login needs one, used for a minute, and made anew as soon as the server refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cdcd.errors import AccessDenied, CdcdError, PostgresUnavailable, RequestRejected
from cdcd.made_secret import NotMadeError
from cdcd.source import login, server_errors
from cdcd.source.login import Login, PasswordMaker, logged_in
from cdcd.source.session import parameters

REFUSED = 'FATAL:  password authentication failed for user "cdcd"'


class Server:
    """Takes one password, and counts the logins."""

    def __init__(self, password: str = "p1") -> None:
        self.password = password
        self.tried: list[str] = []

    def attempt(self, params: Mapping[str, Any]) -> str:
        self.tried.append(params["password"])
        if params["password"] != self.password:
            raise server_errors.connection_refused(REFUSED, "cdcd")
        return str(params["host"])


class Maker:
    """Makes p1, p2 ... and notes for whom; or fails."""

    def __init__(self, *, is_for_host: bool = False) -> None:
        self.places: list[tuple[str, int, str]] = []
        self.failure: NotMadeError | None = None
        self.now_s = 100.0
        self.passwords = PasswordMaker("the setting", self.make, is_for_host=is_for_host, clock=lambda: self.now_s)

    def make(self, host: str, port: int, user: str) -> str:
        if self.failure is not None:
            raise self.failure
        self.places.append((host, port, user))
        return f"p{len(self.places)}"

    def parameters(self, dsn: str = "host=db user=cdcd") -> dict[str, Any]:
        return parameters(Login(dsn, self.passwords), "cdcd")


def test_a_password_is_used_again_for_a_minute() -> None:
    maker, server = Maker(), Server()
    for now_s in (100.0, 159.9):
        maker.now_s = now_s
        assert logged_in(maker.parameters(), server.attempt) == "db"
    assert maker.places == [("db", 5432, "cdcd")]
    maker.now_s, server.password = 160.0, "p2"
    logged_in(maker.parameters(), server.attempt)
    assert server.tried == ["p1", "p1", "p2"]


def test_a_password_that_was_changed_within_the_minute_is_made_anew_at_once() -> None:
    maker, server = Maker(), Server()
    logged_in(maker.parameters(), server.attempt)
    server.password = "p2"
    logged_in(maker.parameters(), server.attempt)
    assert server.tried == ["p1", "p1", "p2"]


def test_a_password_that_is_changed_between_its_making_and_the_login_is_made_anew() -> None:
    maker, server = Maker(), Server("p3")
    logged_in(maker.parameters(), server.attempt)
    assert server.tried == ["p1", "p2", "p3"]


def test_new_passwords_that_are_refused_are_an_error_that_names_who_makes_them() -> None:
    maker, server = Maker(), Server("another")
    with pytest.raises(AccessDenied, match="refused the login") as caught:
        logged_in(maker.parameters(), server.attempt)
    assert server.tried == ["p1", "p2", "p3"]
    assert "the setting" in caught.value.hint
    assert "PGPASSWORD" not in caught.value.hint


def test_the_same_password_again_is_not_tried_again() -> None:
    server = Server("another")
    maker = PasswordMaker("the setting", lambda *_: "p1")
    for tried in (["p1"], ["p1", "p1"]):
        with pytest.raises(AccessDenied, match="refused the login"):
            logged_in(parameters(Login("host=db", maker), "cdcd"), server.attempt)
        assert server.tried == tried


def test_another_refusal_makes_no_new_password() -> None:
    maker = Maker()

    def attempt(_: Mapping[str, Any]) -> None:
        raise AccessDenied("no pg_hba.conf entry", "Add a line", code="hba-refused")

    for _ in range(2):
        with pytest.raises(AccessDenied, match="Add a line"):
            logged_in(maker.parameters(), attempt)
    assert len(maker.places) == 1


@pytest.mark.parametrize(("cannot_run", "kind"), [(False, PostgresUnavailable), (True, AccessDenied)])
def test_a_maker_that_fails_is_waited_for_and_one_that_is_not_there_only_if_it_has_worked(
    cannot_run: bool, kind: type[CdcdError]
) -> None:
    maker, server = Maker(), Server()
    maker.failure = NotMadeError("ended with exit status 1", cannot_run=cannot_run)
    with pytest.raises(CdcdError, match="the setting made no password: it ended with exit status 1") as caught:
        logged_in(maker.parameters(), server.attempt)
    assert type(caught.value) is kind
    maker.failure = None
    assert logged_in(maker.parameters(), server.attempt) == "db"


def test_a_function_makes_a_password_for_each_host_and_the_first_that_lets_it_in_is_used() -> None:
    maker = Maker(is_for_host=True)

    def attempt(params: Mapping[str, Any]) -> tuple[str, str]:
        if params["host"] == "a":
            raise PostgresUnavailable("a is away", code="postgres-unreachable")
        return params["host"], params["password"]

    assert logged_in(maker.parameters("host=a,b,c port=1,2,3 user=cdcd"), attempt) == ("b", "p2")
    assert maker.places == [("a", 1, "cdcd"), ("b", 2, "cdcd")]


def test_a_command_makes_one_password_for_all_hosts() -> None:
    maker, server = Maker(), Server()
    assert logged_in(maker.parameters("host=a,b user=cdcd"), server.attempt) == "a,b"
    assert len(maker.places) == 1


def test_one_host_that_may_let_it_in_later_is_enough_to_try_again() -> None:
    maker = Maker(is_for_host=True)

    def attempt(params: Mapping[str, Any]) -> None:
        if params["host"] == "a":
            raise PostgresUnavailable("a is away", code="postgres-unreachable")
        raise RequestRejected("b refuses", code="pooler-between")

    with pytest.raises(PostgresUnavailable, match="a is away; b refuses"):
        logged_in(maker.parameters("host=a,b user=cdcd"), attempt)


def test_a_standby_is_preferred_among_hosts_with_passwords_of_their_own() -> None:
    maker, tried = Maker(is_for_host=True), []

    def attempt(params: Mapping[str, Any]) -> None:
        tried.append((params["host"], params["target_session_attrs"]))
        raise PostgresUnavailable("away", code="postgres-unreachable")

    with pytest.raises(PostgresUnavailable):
        logged_in(maker.parameters("host=a,b user=cdcd target_session_attrs=prefer-standby"), attempt)
    assert tried == [("a", "standby"), ("b", "standby"), ("a", "any"), ("b", "any")]


def test_what_the_dsn_does_not_say_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "elsewhere")
    monkeypatch.setenv("PGPORT", "6543")
    monkeypatch.setenv("PGUSER", "somebody")
    maker = Maker(is_for_host=True)
    logged_in(maker.parameters("dbname=shop"), Server().attempt)
    assert maker.places == [("elsewhere", 6543, "somebody")]


def test_without_a_maker_the_parameters_are_left_as_they_are() -> None:
    assert login.password_maker((), None) is None
    params = parameters(Login("host=db"), "cdcd")
    assert "password" not in logged_in(params, dict)
    assert params == parameters("host=db", "cdcd")
