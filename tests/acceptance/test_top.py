"""The status of a real daemon on a terminal: what `cdcd run` says first, `cdcd top` and `cdcd status`."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

from support.daemon import Daemon, cdcd, command, environment
from support.stream import StreamFixture, Writer, eventually, port_of
from support.terminal import OnTerminal


def url(daemon: Daemon) -> str:
    return f"http://127.0.0.1:{port_of(daemon)}/"


def status(daemon: Daemon) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url(daemon)}status.json", timeout=5) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_a_start_on_a_terminal_says_in_five_lines_where_it_is(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon()
    with OnTerminal([*command(), "run", "--config", str(daemon.config)], environment()) as terminal:
        lines = terminal.read_until("stop   Ctrl-C").splitlines()[:5]
        assert re.match(r"cdcd \S+ \((compiled|pure)\), Python \S+, on \S+", lines[0])
        assert re.match(
            r"from   test_\S+@127\.0\.0\.1:\d+ \(PostgreSQL \d+\.\d+\), slot \S+, publication cdcd", lines[1]
        )
        assert re.match(r"to     127\.0\.0\.1:\d+ \(cluster \S+, 1 broker\), prefix \S+", lines[2])
        assert re.match(r"page   http://127\.0\.0\.1:\d+/", lines[3])
        terminal.read_until("going on")
        assert "starting version=" not in terminal.text
        terminal.interrupt()
        assert terminal.wait() == 0


def test_a_snapshot_is_shown_with_what_is_left_until_its_last_row(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE large (id int PRIMARY KEY, v text)")
    stream.sql("INSERT INTO large SELECT n, repeat('x', 900) FROM generate_series(1, 20000) n")
    daemon = stream.daemon(snapshot={"mode": "initial", "workers": 1, "chunk_bytes": 1 << 19}).start()
    seen: list[dict[str, Any]] = []

    def is_copied() -> bool:
        found = status(daemon)
        if found["snapshot"] is not None and found["snapshot"]["is_read"]:
            seen.append(found["snapshot"])
        return bool(found["flow"]["copied_rows"] == 20_000 and found["snapshot"] is None)

    eventually(is_copied, "an end of the snapshot", 90)
    assert seen, "the snapshot was over before anybody looked"
    shares = [each["share"] for each in seen]
    assert shares == sorted(shares)
    assert all(each["bytes_left"] > 0 for each in seen if each["rows"] < 20_000), "rows are left, and so are bytes"
    assert {table["name"] for each in seen for table in each["unfinished"]} == {"public.large"}
    [table] = status(daemon)["tables"]
    assert (table["name"], table["rows"], table["copied_rows"]) == ("public.large", 0, 20_000)
    assert daemon.stop() == 0


def test_top_shows_the_daemon_live_until_ctrl_c_and_leaves_the_terminal_as_it_was(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    eventually(lambda: status(daemon)["flow"]["transactions"] == 1, "a transaction")
    top = [*command(), "top", "--interval", "0.2", "--url", url(daemon)]
    with OnTerminal(top, environment(), columns=60) as terminal:
        terminal.read_until("1 change in 1 transaction\x1b")
        assert "\x1b[1;32mstreaming" in terminal.text
        stream.sql("INSERT INTO t VALUES (2)")
        terminal.read_until("2 changes in 2 transactions\x1b")
        assert daemon.stop() == 0
        terminal.read_until("no daemon answers at")
        terminal.interrupt()
        assert terminal.wait() == 0
    assert terminal.text.startswith("\x1b[?1049h\x1b[?25l")
    assert terminal.text.endswith("\x1b[?25h\x1b[?1049l")
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.text.replace("\x1b[H", "\n"))
    assert max(map(len, shown.splitlines())) <= 60
    assert "no daemon answers at" in cdcd(daemon, "top", "--url", "http://127.0.0.1:1/", code=1)


def test_a_log_begins_with_where_it_is_and_a_status_has_the_same_without_colour_where_nobody_wants_it(
    stream: StreamFixture,
) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon(log={"format": "json"}).start()
    daemon.wait_for_log("going on")
    first = json.loads(daemon.log.read_text().splitlines()[0])
    assert first["message"] == "starting"
    assert {"version", "build", "machine", "database", "slot", "publication", "brokers", "prefix"} <= first.keys()
    assert first["brokers"] == stream.broker
    where = ["--url", first["url"]]
    with OnTerminal([*command(), "top", "--once", *where], {**environment(), "NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 0
    assert "Nothing: changes flow." in terminal.text
    assert "\x1b" not in terminal.text
    assert first["database"] in terminal.text
    assert "monitoring.port is 0" in cdcd(daemon, "status", code=2)
    shown = json.loads(cdcd(daemon, "status", "--json", *where))
    assert (shown["source"]["database"], shown["sink"]["prefix"]) == (first["database"], stream.prefix)
    assert "streaming" in cdcd(daemon, "top", *where), "no terminal: once"
    assert daemon.stop() == 0
