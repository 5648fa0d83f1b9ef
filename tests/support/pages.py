"""The code blocks of the README and of the manual, and what executes each of them.

Before: people write the pages. After: `unit/manual/test_blocks.py` holds the list complete; `page_reader` does what the
blocks say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = "README"
_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: str
    language: str
    text: str

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]


@dataclass(frozen=True)
class By:
    """A script below tests/ that is run by hand, because it fetches or takes too much for the usual run."""

    script: str
    """Its path, and the options with which it executes the block."""


@dataclass(frozen=True)
class NotExecuted:
    """A block that nothing executes."""

    reason: str


_EVENT = "acceptance/test_manual.py::test_the_settings_of_the_readme_give_the_event_that_the_pages_show"
_BY_HAND = By("readers/by_hand.py")
_MIGRATE = "acceptance/test_migrate.py"
_OPERATING = "acceptance/test_manual_operating.py"
_TABLES = "unit/manual/test_tables.py::test_the_settings_of_the_page_give_the_topics"
_OUTBOX = "acceptance/test_outbox.py::test_the_page_and_what_knows_the_outbox"
_OTHERS = "acceptance/test_manual.py::test_other_programs_read_the_topics"
_PRIVILEGES = "acceptance/test_privileges_page.py::test_the_page_from_empty_servers_to_a_table_that_is_made_later"
_REGISTRY = "acceptance/test_registry.py::test_the_page_of_the_registry_and_the_program_that_reads_with_one"
_RELEASE = NotExecuted("`.build/release test` and `papers` install the wheels so, with other paths")
_TUTORIAL = "acceptance/test_manual.py::test_the_tutorial"

Executes = str | By | NotExecuted

BLOCKS: dict[str, dict[str, Executes]] = {
    README: {
        "git clone": "acceptance/test_quickstart.py::test_events_of_every_table_arrive_and_a_second_run_goes_on",
        "topic    ": NotExecuted("what the quick start prints; its numbers are of one run"),
        "python3 -m venv": NotExecuted(
            "tests/run installs the wheel in its own way, and the tests run cdcd from there"
        ),
        "[source]": _EVENT,
        '{"key": {"id": 7},': _EVENT,
    },
    "tutorial": {
        "CREATE TABLE orders": _TUTORIAL,
        "[source]": _TUTORIAL,
        "cdcd check": _TUTORIAL,
        "cdcd run": _TUTORIAL,
        "INSERT INTO orders": _TUTORIAL,
        "cdcd tail": _TUTORIAL,
        "cdcd verify": _TUTORIAL,
        "cdcd slot drop": _TUTORIAL,
    },
    "events": {
        '{"topic": "shop.public.orders"': _EVENT,
        '{"id":7}': "unit/json_events/test_json_format.py::test_the_update_on_the_page_about_events",
    },
    "types": {
        '{"name": "amount"': "unit/manual/test_types.py::test_the_field_of_a_decimal_is_that_of_a_schema",
        "CREATE TYPE mood": (
            "integration/test_types_page.py"
            "::test_each_example_is_what_the_server_writes_and_the_same_avro_in_both_modes"
        ),
        '{"op": "c"': "unit/manual/test_types.py::test_the_event_of_a_lost_value_is_the_one_shown",
    },
    "consumers": {
        "# rows.py": _TUTORIAL,
        "python rows.py": _TUTORIAL,
        "# events.py": _REGISTRY,
        "python events.py": _REGISTRY,
        "// Rows.java": _OTHERS,
        "java": _OTHERS,
        "CREATE TABLE order_events": _BY_HAND,
        "SET ": _BY_HAND,
        "# orders_json.py": "spark/test_json_events.py::test_the_program_on_the_page_reads_json_by_spark_alone",
        "name=shop-copy": "acceptance/test_jdbc_sink.py::test_the_tables_of_the_sink_are_those_of_the_source",
        "kafka-console-consumer.sh": _OTHERS,
        "kcat": _BY_HAND,
    },
    "debezium": {
        '[sink]\nformat = "debezium"': "unit/manual/test_debezium.py::test_the_settings_of_the_page_are_taken",
        '[sink]\nformat = "row"': "unit/manual/test_debezium.py::test_the_settings_of_the_page_are_taken",
        "[avro]": "unit/manual/test_debezium.py::test_the_settings_of_the_page_are_taken",
        "transforms=route": "unit/manual/test_debezium.py::test_the_router_of_the_page_becomes_its_settings",
        "[debezium]\nkey_field_name": "unit/manual/test_debezium.py::test_the_router_of_the_page_becomes_its_settings",
        '{"transaction": ': "unit/manual/test_debezium.py::test_the_metadata_of_the_page_is_written",
        '{"status": "BEGIN"': "unit/manual/test_debezium.py::test_the_metadata_of_the_page_is_written",
        '{"id": 7': "unit/manual/test_debezium.py::test_the_rows_of_the_page_are_written",
        '[{"image": "after"': "unit/manual/test_debezium.py::test_the_header_of_lost_values_is_that_of_the_page",
        "cdcd migrate debezium connector.json --brokers": (
            f"{_MIGRATE}::test_cdcd_check_takes_what_a_connector_was_converted_to"
        ),
        "curl -X PUT": f"{_MIGRATE}::test_a_connector_is_replaced_in_place_under_load_and_gets_its_slot_back",
        "cdcd migrate debezium connector.json --back": (
            f"{_MIGRATE}::test_a_connector_is_replaced_in_place_under_load_and_gets_its_slot_back"
        ),
    },
    "deployment": {
        "CDCD_MONITORING__PORT=9479": f"{_OPERATING}::test_a_standby_daemon",
        "cdcd init --dsn": f"{_OPERATING}::test_two_shards",
        "# orders.toml": f"{_OPERATING}::test_two_shards",
        "# customers.toml": f"{_OPERATING}::test_two_shards",
        "cdcd run --config orders.toml": f"{_OPERATING}::test_two_shards",
    },
    "install": {
        "python3 -m venv": _RELEASE,
        "CDCD_COMPILE=require": NotExecuted("it needs a package index that has cdcd, and there is no release yet"),
        "pip install --require-hashes": _RELEASE,
        "docker build": NotExecuted("it needs Docker; `.build/release image` builds the same and looks through it"),
        "pip download --dest wheels cdcd": NotExecuted("it needs a package index that has cdcd: no release yet"),
        "pip install --no-index": _RELEASE,
        "pip download --dest wheels --only-binary": NotExecuted("`.build/release platforms` asks pip the same"),
        "sha256sum": NotExecuted("a workflow's job does the same with the files of a release"),
    },
    "monitoring": {
        "kubectl exec": NotExecuted("it needs a cluster; acceptance/test_top.py runs `cdcd top --url` without one"),
        "cdcd 0.1.0 (pure)  streaming": NotExecuted("what `cdcd status` printed; its numbers are of one run"),
        "cdcd 0.1.0 (pure), Python": NotExecuted("what `cdcd run` said on a terminal; acceptance/test_top.py reads it"),
    },
    "servers": {
        "cdcd verify --config cdcd.toml": f"{_OPERATING}::test_another_server",
        "cdcd adopt": f"{_OPERATING}::test_another_server",
        "cdcd run --config cdcd.toml": f"{_OPERATING}::test_another_server",
        "# moved.toml": f"{_OPERATING}::test_another_kafka_cluster",
        "cdcd run --config moved.toml": f"{_OPERATING}::test_another_kafka_cluster",
        "cdcd verify --config moved.toml": f"{_OPERATING}::test_another_kafka_cluster",
        "cdcd slot drop": f"{_OPERATING}::test_another_kafka_cluster",
    },
    "sizing": {
        "SELECT pg_size_pretty": "integration/test_sizing_page.py::test_the_question_after_the_wal_has_an_answer",
    },
    "spark": {
        "# mirror.toml": NotExecuted("somebody ran it by hand on a bare machine; tests/spark has settings of its own"),
        "# iceberg.toml": "spark/test_catalogs.py::test_the_page_mirrors_into_catalogs_of_iceberg_that_need_no_server",
        "[mirror]": NotExecuted("spark/test_reader_views.py makes such views in a schema of its own"),
        "SELECT DISTINCT": NotExecuted("spark/test_reader_views.py asks so, of views of its own"),
        "SELECT lsn": NotExecuted("spark/test_reader_views.py asks DuckDB so, of tables of its own"),
        "[[tables]]": NotExecuted("spark/test_per_table_pure.py loads such entries, spark/test_targets.py uses them"),
        "cdcd spark mirror": NotExecuted("the same; tests/spark/chaos.py runs the mirror, and kills it"),
        "mirror: run 42": "spark/test_runs_pure.py::test_the_status_on_the_page",
        "import tomllib": "spark/test_spark_page.py::test_the_program_on_the_page",
        "from cdcd.spark import Cdc": "spark/test_spark_page.py::test_the_program_on_the_page",
        "keytool": NotExecuted("it changes the machine's truststore; somebody ran it behind a proxy"),
        "[spark]": NotExecuted("somebody ran it where the repository lacked this jar; spark/test_pure.py has the hint"),
    },
    "tables": {
        '[[table]]\nmatch = "tenant_*.orders"\ntopic = "{prefix}.orders-of': _TABLES,
        '[[table]]\nmatch = "tenant_*.orders"\ntopic = "{prefix}.orders"': _TABLES,
        '[[table]]\nmatch = "public.huge"\nhours': (
            "unit/manual/test_tables.py::test_the_settings_of_the_page_give_a_table_hours_and_limits_of_its_own"
        ),
        "cdcd unpark --config cdcd.toml\n": f"{_OPERATING}::test_the_page_about_tables",
        "cdcd unpark --config cdcd.toml public.orders": f"{_OPERATING}::test_the_page_about_tables",
        "cdcd verify --config": f"{_OPERATING}::test_the_page_about_tables",
        "cdcd verify --repair": f"{_OPERATING}::test_the_page_about_tables",
        "cdcd snapshot --config cdcd.toml public": f"{_OPERATING}::test_the_page_about_tables",
        "cdcd snapshot --config cdcd.toml --pause": f"{_OPERATING}::test_the_page_about_tables",
        "INSERT INTO cdcd.requests": f"{_OPERATING}::test_the_page_about_tables",
        "COMMENT ON PUBLICATION": "integration/test_publication.py::test_the_statement_of_the_page_gives_it_to_cdcd",
    },
    "columns": {
        '[[table]]\nmatch = "public.customers"': (
            "unit/manual/test_columns.py::test_the_settings_of_the_page_give_its_masks"
        ),
        '[[table]]\nmatch = "tenant_*': "unit/manual/test_columns.py::test_the_settings_of_the_page_give_its_key",
        '[[table]]\nmatch = "*.orders"': (
            "unit/manual/test_columns.py::test_the_settings_of_the_page_give_its_partitions"
        ),
        "from hashlib": "unit/manual/test_columns.py::test_the_program_of_the_page_makes_the_hash_of_a_mask",
    },
    "outbox": {
        "CREATE TABLE outbox": _OUTBOX,
        "[outbox]": _OUTBOX,
        "INSERT INTO outbox": _OUTBOX,
        "SELECT pg_logical_emit_message": _OUTBOX,
        "[avro]": (
            "acceptance/test_outbox.py::test_payloads_are_avro_by_the_schema_that_the_application_has_registered"
        ),
    },
    "registry": {
        "[avro]  # a registry without TLS": _REGISTRY,
        '[avro]\nregistry_url = "https:': (
            "acceptance/test_registry.py::test_a_registry_behind_tls_and_a_password_is_reached_as_the_page_says"
        ),
        "cdcd schema --register": _REGISTRY,
    },
}
"""By page and the words with which a block begins: the test or the script that executes it, or why nothing does."""

WHOLE_PAGES: dict[str, dict[str, Executes]] = {
    "errors": {
        "sh": "acceptance/test_error_page.py::test_the_commands_of_the_cures_run",
        "sql": "acceptance/test_error_page.py::test_the_statements_of_a_cure_run",
        "toml": "unit/manual/test_errors.py::test_the_settings_of_a_cure_are_taken",
    },
    "login": {
        "python": "unit/manual/test_login.py::test_the_functions_return_what_cdcd_wants",
        "sql": NotExecuted("the roles rds_iam and rds_replication exist on Amazon RDS only"),
        "toml": "unit/manual/test_login.py::test_a_file_of_settings_is_complete",
    },
    "privileges": {"properties": _PRIVILEGES, "sh": _PRIVILEGES, "sql": _PRIVILEGES, "text": _PRIVILEGES},
    "kubernetes": {"sh": NotExecuted("it needs a cluster: the tests render the same chart and the same manifests")},
}
"""By page and language: a test that takes every block of the language from the page, also one that is new."""


def pages() -> list[Path]:
    """The README, and every page of the manual."""
    return [ROOT / f"{README}.md", *sorted((ROOT / "cdcd" / "manual").glob("*.md"))]


def blocks(page: str) -> list[Block]:
    """The code blocks of a page, in their order."""
    [path] = [path for path in pages() if path.stem == page]
    found = _FENCE.findall(path.read_text(encoding="utf-8"))
    return [
        Block(page, language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)) for indent, language, text in found
    ]


def executes(block: Block) -> Executes | None:
    """What is said to execute a block; None if nothing is said of it."""
    if block.page in WHOLE_PAGES:
        return WHOLE_PAGES[block.page].get(block.language.partition(" ")[0])
    told = [by for words, by in BLOCKS.get(block.page, {}).items() if block.text.startswith(words)]
    return told[0] if len(told) == 1 else None
