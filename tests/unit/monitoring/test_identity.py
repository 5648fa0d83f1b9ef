from __future__ import annotations

import pytest

from cdcd import __version__
from cdcd.build_info import build
from cdcd.config.settings import AvroSettings, Settings, SinkSettings, SourceSettings
from cdcd.monitoring.http_server import url
from cdcd.monitoring.identity import Servers, database, identity_of, kafka_cluster, lines
from cdcd.source.session import version_text


@pytest.fixture(autouse=True)
def _without_libpq_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("host=db port=5433 dbname=shop user=u password=secret", "shop@db:5433"),
        ("postgresql://u:secret@db/shop", "shop@db:5432"),
        ("postgresql://u@a:1,b:2/shop", "shop@a:1,b:2"),
        ("host=a,b port=7 dbname=shop", "shop@a:7,b:7"),
        ("host=/run/postgresql user=u", "u@/run/postgresql:5432"),
        ("hostaddr=10.0.0.1 dbname=shop", "shop@10.0.0.1:5432"),
    ],
)
def test_a_database_is_named_as_people_name_it_and_without_its_password(dsn: str, shown: str) -> None:
    assert database(dsn) == shown


def test_what_the_environment_gives_to_libpq_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "elsewhere")
    monkeypatch.setenv("PGDATABASE", "shop")
    assert database("") == "shop@elsewhere:5432"


def test_a_start_says_where_it_is_in_five_lines_and_no_secret() -> None:
    settings = Settings(
        source=SourceSettings(dsn="host=db dbname=shop password=secret"),
        sink=SinkSettings(bootstrap_servers="kafka:9092", prefix="shop"),
        avro=AvroSettings(registry_url="http://user:secret@registry:8081"),
    )
    identity, servers = identity_of(settings), Servers()
    servers.postgresql, servers.kafka = version_text(180006), kafka_cluster("id", 1)
    text = lines(identity, servers, "http://127.0.0.1:9478/")
    assert len(text) == 5
    assert text[0].startswith(f"cdcd {__version__} ({build()}), Python ")
    assert "shop@db:5432 (PostgreSQL 18.6), slot cdcd, publication cdcd" in text[1]
    assert "kafka:9092 (cluster id, 1 broker), prefix shop, schemas in http://registry:8081" in text[2]
    assert "http://127.0.0.1:9478/" in text[3]
    assert "secret" not in str(text) + str(identity.fields())
    assert identity.fields()["database"] == "shop@db:5432"


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "http://127.0.0.1:1/"),
        ("0.0.0.0", "http://127.0.0.1:1/"),
        ("::", "http://127.0.0.1:1/"),
        ("::1", "http://[::1]:1/"),
        ("db.example", "http://db.example:1/"),
    ],
)
def test_the_url_of_the_page_is_one_that_a_browser_on_this_machine_can_open(host: str, shown: str) -> None:
    assert url(host, 1) == shown
