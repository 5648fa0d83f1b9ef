"""How cdcd logs in to PostgreSQL: the DSN, and what makes the password if the DSN is not to have one.

Before: `source.dsn`, `source.password_command` and `source.password_function`.
After: `session.log_in`, through which every connection is made, asks for the password.
Source: libpq, "Parameter Key Words".

A command may take seconds, and the daemon connects every ten seconds for a moment. So a password is used again for
REUSED_FOR_S. If the server refuses it, another one is made at once: it may have changed, even since it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar

from cdcd.clock import monotonic_s
from cdcd.errors import AccessDenied, CdcdError, PostgresUnavailable
from cdcd.made_secret import NamedFunction, NotMadeError, from_command, text
from cdcd.source import server_errors

REUSED_FOR_S: Final = 60.0
_TRIES: Final = 3

BUILT_IN: Final[Mapping[str, str]] = {"aws-rds-iam": "cdcd.aws_iam:rds_token"}
"""Functions of cdcd, by the name that the setting has for them."""

Parameters: TypeAlias = "Mapping[str, Any]"
_C = TypeVar("_C")


class PasswordMaker:
    """Makes passwords. For any thread; one is made at a time."""

    def __init__(
        self,
        setting: str,
        make: Callable[[str, int, str], str],
        *,
        is_for_host: bool = False,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """`make` gets host, port and user. `is_for_host`: a password is good for one host alone.

        `setting` says in errors who makes them.
        """
        self.setting = setting
        self.is_for_host = is_for_host
        self._make = make
        self._clock = clock
        self._lock = Lock()
        self._made: dict[tuple[str, int, str], tuple[str, float]] = {}

    def password(self, host: str, port: int, user: str, refused: str | None = None) -> str:
        """Return a password: a new one if the last one is `refused`.

        Raises PostgresUnavailable if none can be made now, and AccessDenied if the command cannot be run.
        """
        place = host, port, user
        with self._lock:
            found, made_s = self._made.get(place, ("", float("-inf")))
            if found and found != refused and self._clock() - made_s < REUSED_FOR_S:
                return found
            self._made.pop(place, None)
            try:
                made = self._make(*place)
            except NotMadeError as error:
                raise self._not_made(error) from None
            self._made[place] = made, self._clock()
            return made

    def _not_made(self, error: NotMadeError) -> CdcdError:
        kind = AccessDenied if error.cannot_run else PostgresUnavailable
        return kind(
            f"{self.setting} made no password: it {error.why}",
            "Run it by hand, as the user of this process, to see why",
            code="password-not-made",
        )


@dataclass(frozen=True)
class Login:
    """How one server is logged in to."""

    dsn: str = field(repr=False)
    """A libpq connection string or URI."""
    maker: PasswordMaker | None = None
    """What makes the password; None: it is where libpq looks for it."""


Dsn: TypeAlias = "str | Login"


def password_maker(command: tuple[str, ...], function: str | None) -> PasswordMaker | None:
    """Return what makes passwords as the settings name it; None if they name nothing."""
    if command:
        return PasswordMaker("source.password_command", lambda *_: from_command(command))
    if not function:
        return None
    call = NamedFunction("source.password_function", BUILT_IN.get(function, function))
    setting = f'source.password_function = "{function}"'
    return PasswordMaker(setting, lambda *place: text(call(*place)), is_for_host=True)


def logged_in(params: Parameters, attempt: Callable[[Parameters], _C]) -> _C:
    """Return what `attempt` returns for these parameters; if they name a PasswordMaker, with a password of it.

    Raises what `attempt` raises, a CdcdError, for the hosts together.
    """
    maker = params.get("password")
    if not isinstance(maker, PasswordMaker):
        return attempt(params)
    failures: list[CdcdError] = []
    for each in _hosts(params) if maker.is_for_host else (params,):
        try:
            return _with_password(maker, each, attempt)
        except CdcdError as error:
            failures.append(error)
    raise server_errors.of_hosts(failures)


def _with_password(maker: PasswordMaker, params: Parameters, attempt: Callable[[Parameters], _C]) -> _C:
    place = parameter(params, "host"), int(parameter(params, "port") or 5432), parameter(params, "user")
    refused, failure = None, None
    for _ in range(_TRIES):
        password = maker.password(*place, refused)
        if password == refused:
            break
        try:
            return attempt({**params, "password": password})
        except AccessDenied as error:
            if error.hint != server_errors.LOGIN_HINT:
                raise
            refused, failure = password, error
    assert failure is not None
    failure.hint = f"Check the user in source.dsn, and the password that {maker.setting} makes"
    raise failure


def _hosts(params: Parameters) -> Iterator[Parameters]:
    """Give the parameters for each host alone, in the order in which libpq would try them."""
    listed = {name: parameter(params, name).split(",") for name in ("host", "hostaddr", "port")}
    count = max(len(listed["host"]), len(listed["hostaddr"]))
    hosts = [
        {**params, **{name: values[n] if n < len(values) else values[0] for name, values in listed.items()}}
        for n in range(count)
    ]
    if params.get("target_session_attrs") == "prefer-standby":
        yield from ({**each, "target_session_attrs": "standby"} for each in hosts)
        hosts = [{**each, "target_session_attrs": "any"} for each in hosts]
    yield from hosts


def parameter(params: Parameters, name: str) -> str:
    """Return a parameter of the login, from where libpq takes it: the DSN, the environment, or its default."""
    from psycopg import pq  # here: the settings import this module, and `cdcd config` needs no libpq

    if params.get(name):
        return str(params[name])
    defaults = {each.keyword.decode(): each.val for each in pq.Conninfo.get_defaults()}
    return (defaults.get(name) or b"").decode()
