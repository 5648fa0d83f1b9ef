from __future__ import annotations

import re
from html.parser import HTMLParser

from cdcd.errors import PostgresUnavailable
from cdcd.monitoring.history import SAMPLES_MAX
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.status import ERRORS_MAX, CommitTimes, QueueDepths, Status
from cdcd.monitoring.status_page import asset, render
from cdcd.monitoring.status_report import TABLES_MAX, report
from cdcd.snapshot.table_progress import SnapshotProgress, TableProgress


class Outline(HTMLParser):
    """The tags and attributes of a page, which browsers and assistive technology use."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def status() -> Status:
    return Status(Identity("1.0", "slot", "pub", "pure", "vm", "shop@db:5432", "kafka:9092", "shop"), 1000.0)


def page(it: Status, now_s: float = 1002.0) -> str:
    return render(report(it, now_s, 10_000_000))


def busy() -> Status:
    """A daemon that streams, copies, has parked a table, and has had an error."""
    it = status()
    it.begin_stream(1000.0)
    it.published.add(1001.0, 1, {"public.a": 3}, CommitTimes(9_000_000, 0.012))
    it.published.add_copied(1001.0, {"public.b": 127_920})
    it.parked = {"public.c": "too large"}
    it.errors.add(1001.0, PostgresUnavailable("gone", "look", code="postgres-interrupted"))
    tables = (TableProgress("public", "b", 127_920, 100, 25, is_done=False),)
    it.snapshot = lambda _: SnapshotProgress(is_read=True, lsn=0x1600, tables=tables, seconds_left=30)
    for number in range(5):
        it.sample(1000.0 + number, 3_000_000)
    return it


def test_the_page_says_everything_in_tags_that_assistive_technology_knows_and_loads_nothing_from_elsewhere() -> None:
    text = page(busy())
    outline = Outline(text)
    assert outline.all("html") == [{"lang": "en"}]
    assert len(outline.all("h1")) == len(outline.all("main")) == len(outline.all("title")) == 1
    assert all(cell.get("scope") in ("row", "col") for cell in outline.all("th"))
    assert all(plot.get("aria-hidden") == "true" for plot in outline.all("svg")), "their captions say the same"
    assert len(outline.all("figcaption")) == len(outline.all("svg")) == 3
    assert [bar.get("aria-label") for bar in outline.all("progress")] == ["Part of the snapshot that was read"]
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all("id" in attributes for _, attributes in outline.tags if "data-part" in attributes)
    assert [attributes.get("id") for _, attributes in outline.tags if attributes.get("role") == "status"] == [
        "state",
        "trouble",
    ]
    assert not re.search(r"https?://", text)
    assert not any({"style", "onclick", "http-equiv"} & attributes.keys() for _, attributes in outline.tags)


def test_the_page_loads_its_style_and_script_from_addresses_that_work_behind_a_proxy_with_a_path() -> None:
    outline = Outline(page(status()))
    loaded = [each["src"] for each in outline.all("script")] + [each["href"] for each in outline.all("link")]
    assert loaded == ["page.js", "data:,", "page.css"]
    assert [link["href"] for link in outline.all("a")] == ["./", "status.json", "metrics"]
    script = asset("page.js").decode()
    for name in re.findall(r'getElementById\("(\w+)"\)', script):
        assert f'id="{name}"' in page(status()), name
    assert asset("page.css").startswith(b":root")


def test_what_is_spoken_changes_with_the_state_alone() -> None:
    def spoken(now_s: float) -> str:
        found = re.search(r'role="status">(.*?)</span>\n</span>', page(it, now_s), re.DOTALL)
        assert found is not None
        return found[1]

    it = status()
    it.begin_stream(1000.0)
    assert spoken(1001.0) == spoken(1002.0) == '<span class="state streaming">streaming'
    assert spoken(1300.0) == spoken(1301.0) == '<span class="state failed">stalled: nothing moves at the loop'
    assert "nothing has moved at the loop for 5 min 0 s" in page(it, 1300.0)


def test_the_page_says_where_the_daemon_stands() -> None:
    it = status()
    it.servers.postgresql, it.servers.kafka = "PostgreSQL 18.6", "cluster k, 3 brokers"
    shown = page(it)
    for words in ("shop@db:5432 (PostgreSQL 18.6)", "kafka:9092 (cluster k, 3 brokers)", ">vm<", "1.0 (pure)", ">pub<"):
        assert words in shown, words


def test_the_page_shows_how_far_a_snapshot_is() -> None:
    shown = page(busy())
    assert "75 % read, about 30 s left: 1 of 1 table not complete, 127,920 rows, as of 0/1600." in shown
    assert '<progress max="100" value="75"' in shown
    assert '<th scope="row">public.b</th><td>75 %</td><td>200.0 KiB of 800.0 KiB</td><td>127,920</td>' in shown
    assert "3 changes in 1 transaction, and 127,920 copied rows" in shown
    assert "<td>copying</td><td>0</td><td>127,920</td>" in shown
    it = busy()
    it.depths = lambda: QueueDepths(snapshots_paused=True)
    assert "Paused, 75 % read, about" in page(it)
    assert "the snapshots are paused, so no table is copied. <strong>To let them go on, run: cdcd snapshot" in page(it)
    it = busy()
    it.snapshot = lambda _: SnapshotProgress(is_read=False)
    assert "PostgreSQL prepares it, and waits for the end of transactions that write." in page(it)
    it.snapshot = lambda _: SnapshotProgress(is_read=False, waiting=2)
    assert "2 tables not copied yet: snapshots wait for their hours." in page(it)
    it.end_stream(1003.0, 0)
    assert "<progress" not in page(it)


def test_the_page_shows_the_delay_of_each_table() -> None:
    row = '<th scope="row">public.a</th><td></td><td>3</td><td>0</td><td>0</td><td>12 ms</td><td>1.0 s ago</td>'
    assert row in page(busy())


def test_the_page_says_what_to_do() -> None:
    assert "<p>Wait: the daemon starts.</p>" in page(status())
    it = status()
    it.begin_stream(1000.0)
    assert "<p>Nothing: changes flow.</p>" in page(it)
    assert (
        "the table public.c is parked; the reason when it was: too large. "
        "<strong>Correct the cause, then run: cdcd unpark public.c [table-parked]</strong>" in page(busy())
    )


def test_the_page_escapes_what_comes_from_outside() -> None:
    it = status()
    it.published.add(1001.0, 1, {"public.<script>": 1})
    it.errors.add(1001.0, ValueError("<b>boom</b>"))
    shown = page(it)
    assert "<script>" not in shown
    assert "public.&lt;script&gt;" in shown
    assert "&lt;b&gt;boom" in shown


def test_the_page_shows_the_busiest_tables_and_counts_the_rest() -> None:
    it = status()
    it.published.add(1001.0, 1, {f"public.t{number}": number for number in range(1, TABLES_MAX + 4)})
    shown = page(it)
    assert f"public.t{TABLES_MAX + 3}<" in shown
    assert "public.t3<" not in shown
    assert '<th scope="row">3 more tables</th><td></td><td>6</td>' in shown


def test_the_page_names_what_is_of_no_table() -> None:
    it = status()
    it.published.add(1001.0, 1, {".messages": 1})
    assert ".messages" not in page(it)
    assert '<th scope="row">logical messages' in page(it)


def test_the_page_shows_the_last_errors_with_their_hint_newest_first() -> None:
    it = status()
    for number in range(ERRORS_MAX + 2):
        it.errors.add(1000.0 + number, PostgresUnavailable(f"gone {number}", f"do {number}", code="slot-lost"))
    shown = page(it, 1010.0)
    assert "gone 1" not in shown
    assert shown.index("<li>4.0 s ago: gone 6. <strong>do 6 [slot-lost]</strong>") < shown.index("gone 5")


def test_the_plots_have_a_common_time_and_round_scales_and_a_number_that_stays_0_draws_no_hill() -> None:
    it = status()
    assert "<svg" not in page(it)
    for number in range(SAMPLES_MAX + 20):
        it.positions.oldest_pending_us = 1_000_000 if number % 2 else 0
        it.sample(1000.0 + 5 * number, 4_000_000)
    assert len(it.history.samples()) == SAMPLES_MAX
    shown = page(it, 1000.0 + 5 * (SAMPLES_MAX + 19))
    lag, wal, rows = re.findall(r"<figure>(.*?)</figure>", shown, re.DOTALL)
    assert "Lag: now 3.0 s, at most 3.0 s in the last quarter of an hour" in lag
    assert "<i>4.0 s</i><i>2.0 s</i><i>0</i>" in lag
    assert "<i>1.0 MiB</i><i>512.0 KiB</i><i>0</i>" in wal
    assert "<i>10</i><i>5</i><i>0</i>" in rows
    assert lag.count("15 min ago") == wal.count("15 min ago") == rows.count("15 min ago") == 1
    assert {point.split()[1] for point in re.findall(r"[ML]([\d. ]+)", rows)} == {"96.0"}, "the ground"
