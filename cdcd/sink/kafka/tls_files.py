"""The files that librdkafka reads when a client is made: certificates, keys, CAs. A client never reads them again.

Before: `sink.librdkafka` names them.
After: the daemon ends a stream in order once they have changed, because each stream has new clients; `cluster_probe`
makes another client. Errors of TLS name the files.
Source: librdkafka CONFIGURATION.md, `ssl.*`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cdcd.certificates import faults, of_file
from cdcd.clock import monotonic_s, utc_now
from cdcd.errors import CdcdError
from cdcd.file_watch import FileWatch
from cdcd.sink.kafka.client_config import KafkaConnection, Property, client_config
from cdcd.sink.kafka.errors import kafka_error, to_cdcd_error
from cdcd.sink.kafka.refusals import TLS

OTHERS_VALID: Final = (
    "The certificates in them are valid today: so the broker's own may have expired, name another host, or be of "
    "another CA."
)
_OF_CAS: Final = frozenset({"ssl.ca.location", "https.ca.location"})
_NO_FILES: Final = frozenset({"ssl.engine.location"})
"""A library, which is loaded once."""


def tls_files(properties: Mapping[str, Property]) -> dict[str, str]:
    """The files, by the property that names them."""
    return {
        name: str(value)
        for name, value in properties.items()
        if name.startswith(("ssl.", "https.")) and name.endswith(".location") and name not in _NO_FILES
    }


def watch_tls_files(connection: KafkaConnection, clock: Callable[[], float] = monotonic_s) -> FileWatch:
    """Watch the files from now on: make the watch before the client that reads them."""

    def try_out() -> None:
        config: dict[str, Any] = client_config(connection.bootstrap, connection.client_id, connection.properties)
        try:
            AdminClient({**config, "log_level": 0})
        except KafkaException as error:
            raise to_cdcd_error(kafka_error(error), "making a client", connection.bootstrap) from None

    return FileWatch(tls_files(connection.properties), try_out, clock)


def naming_files(error: CdcdError, properties: Mapping[str, Property]) -> CdcdError:
    """Let an error of TLS name the files, and when the certificates in them expire. Returns the error."""
    files = tls_files(properties)
    if not files or not error.hint.startswith(TLS.hint):
        return error
    dates = {name: found for name, path in files.items() if (found := of_file(path, is_ca=name in _OF_CAS))}
    named = (f"{name} = {path}" + (f" ({dates[name]})" if name in dates else "") for name, path in files.items())
    error.hint = f"{TLS.hint} The files: {', '.join(named)}."
    wrong = faults({f"{name} = {files[name]}": each for name, each in dates.items()}, utc_now())
    if wrong and wrong not in error.message:
        error.message = f"{error.message}; {wrong}"
    elif dates and not wrong:
        error.hint += f" {OTHERS_VALID}"
    return error
