from __future__ import annotations

import logging

import pytest

from cdcd.config.settings import Settings
from cdcd.daemon.supervisor import Supervisor
from cdcd.errors import KafkaUnavailable
from cdcd.monitoring.status import State


@pytest.mark.parametrize("after_s", [0.0, 3600.0])
def test_a_stream_that_ends_while_it_is_told_to_stop_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, after_s: float
) -> None:
    """Not even a daemon that never streamed fails then, however long it has tried."""
    now = [0.0]
    monkeypatch.setattr("cdcd.daemon.supervisor.monotonic_s", lambda: now[0])
    supervisor = Supervisor(Settings(source={"dsn": "host=x"}, sink={"bootstrap_servers": "k:9092"}))

    def stream() -> None:
        now[0] += after_s
        supervisor._stop = True
        raise KafkaUnavailable("Kafka is away", "Look at it.")

    monkeypatch.setattr(supervisor, "_stream", stream)
    monkeypatch.setattr(supervisor, "_sleep", lambda _: pytest.fail("it waits"))
    log = logging.Logger("own")  # noqa: LOG001 - other tests change the one that all share
    log.addHandler(caplog.handler)
    monkeypatch.setattr("cdcd.daemon.supervisor.log", log)
    supervisor._attempts()
    supervisor._wake.close()
    assert supervisor.status.state is State.STOPPING
    [line] = caplog.messages
    assert line.startswith("stopped; ")
    assert "Kafka is away" in line
