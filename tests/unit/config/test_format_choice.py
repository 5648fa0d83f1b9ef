from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdcd.config.format_choice import debezium_modes, refuse_unread, refuse_without_avro
from cdcd.debezium.modes import RowModes
from cdcd.errors import SettingsError
from cdcd.reading.format_schemas import tableless_schemas

Load = Callable[..., Any]


@pytest.mark.parametrize(
    ("more", "named", "name"),
    [
        ('[avro]\nregistry_url = "http://r:8081"\n', "avro.registry_url", "cdcd"),
        ('[avro]\nregistry_url = "http://r:8081"\n', "avro.registry_url", "debezium"),
        ('on_slot_lost = "repair"\n', 'source.on_slot_lost = "repair"', "debezium"),
    ],
)
def test_what_a_format_cannot_do_is_refused(load_text: Load, minimal: str, more: str, named: str, name: str) -> None:
    chosen = f'format = "{name}"\nencoding = "json"\n'
    text = f"{minimal}{chosen}{more}" if more.startswith("[") else minimal.replace("[sink]", f"{more}[sink]") + chosen
    with pytest.raises(SettingsError) as refused:
        load_text(text)
    assert refused.value.code == "format-unsupported"
    assert named in refused.value.message


def test_debezium_in_avro_needs_a_registry(load_text: Load, minimal: str) -> None:
    chosen = f'{minimal}format = "debezium"\nencoding = "avro"\n'
    with pytest.raises(SettingsError, match="needs a schema registry") as refused:
        load_text(chosen)
    assert refused.value.code == "format-unsupported"
    settings = load_text(f'{chosen}[avro]\nregistry_url = "http://r:8081"\n').settings
    assert settings.sink.event_format == "debezium/avro"
    refuse_without_avro(settings, "cdcd schema")


def test_json_has_no_avro_schemas(load_text: Load, minimal: str) -> None:
    with pytest.raises(SettingsError, match="cdcd schema shows Avro schemas"):
        refuse_without_avro(load_text(f'{minimal}format = "debezium"\nencoding = "json"\n').settings, "cdcd schema")


@pytest.mark.parametrize("name", ["truncates", "provide_transaction_metadata"])
def test_a_row_cannot_say_a_truncate_nor_number_its_transaction(load_text: Load, minimal: str, name: str) -> None:
    with pytest.raises(SettingsError, match=name) as refused:
        load_text(f'{minimal}format = "row"\nencoding = "json"\n[debezium]\n{name} = true\n')
    assert refused.value.code == "format-unsupported"


@pytest.mark.parametrize("is_on", [True, False])
def test_metadata_of_transactions_has_a_topic_and_schemas_if_it_is_asked_for(
    load_text: Load, minimal: str, is_on: bool
) -> None:
    text = f'{minimal}format = "debezium"\nencoding = "json"\n[debezium]\nprovide_transaction_metadata = {is_on}\n'
    settings = load_text(text.replace("True", "true").replace("False", "false")).settings
    assert debezium_modes(settings).transactions == is_on
    prefix = settings.sink.prefix
    assert settings.topic_names().tableless == (f"{prefix}.messages", f"{prefix}.transaction")[: 1 + is_on]
    assert [each.name for each in tableless_schemas(settings)] == ["messages", "transaction"][: 1 + is_on]


def test_the_modes_of_rows_are_those_of_their_section(load_text: Load, minimal: str) -> None:
    chosen = 'format = "row"\nencoding = "json"\n'
    text = f'{minimal}{chosen}[row]\nadd_fields = ["op", "table:from"]\nadd_fields_prefix = "_"\n'
    settings = load_text(text).settings
    modes = debezium_modes(settings)
    assert modes.rows == RowModes((("_op", "op"), ("_from", "source.table")), "tombstone")
    assert (settings.sink.event_format, modes.truncates) == ("row/json", False)
    with pytest.raises(SettingsError, match="nothing is no field of an event"):
        load_text(text.replace("table:from", "nothing"))


@pytest.mark.parametrize("name", ["debezium", "row"])
def test_a_command_refuses_what_it_does_not_read(load_text: Load, minimal: str, name: str) -> None:
    refuse_unread(load_text().settings, "cdcd verify")
    chosen = load_text(f'{minimal}format = "{name}"\nencoding = "json"\n').settings
    with pytest.raises(SettingsError, match="cdcd verify does not read") as refused:
        refuse_unread(chosen, "cdcd verify")
    assert refused.value.code == "format-unsupported"


def test_commands_and_repairs_read_cdcds_own_events_in_json(load_text: Load, minimal: str) -> None:
    text = minimal.replace("[sink]", 'on_slot_lost = "repair"\n[sink]')
    settings = load_text(f'{text}encoding = "json"\n').settings
    refuse_unread(settings, "cdcd verify")
    assert settings.sink.event_format == "cdcd/json"


def test_the_modes_are_those_of_the_section(load_text: Load, minimal: str) -> None:
    text = f'{minimal}format = "debezium"\nencoding = "json-schema"\n[debezium]\ntime_precision_mode = "connect"\n'
    modes = debezium_modes(load_text(text).settings)
    assert (modes.time, modes.with_schemas, modes.decimal) == ("connect", True, "precise")


def test_tables_that_share_a_topic_need_a_subject_for_each_schema_of_cdcd(load_text: Load, minimal: str) -> None:
    shared = '\n[[table]]\nmatch = "tenant_*.orders"\ntopic = "{prefix}.orders"\n'
    registry = '\n[avro]\nregistry_url = "http://r"\n'
    with pytest.raises(SettingsError, match=r'avro\.subject_strategy = "topic" would give one subject'):
        load_text(minimal + registry + shared)
    for text in (f'{minimal}{registry}subject_strategy = "record"\n', f'{minimal}format = "debezium"\n{registry}'):
        assert load_text(text + shared).settings.topic_names().has_shared_topics


def test_the_keys_name_the_table_as_the_settings_say(load_text: Load, minimal: str) -> None:
    text = f'{minimal}format = "debezium"\nencoding = "json"\n[debezium]\nkey_field_name = "of"\n'
    assert debezium_modes(load_text(text).settings).table_in_key == "of"
    assert debezium_modes(load_text(f"{text}key_enforce_uniqueness = false\n").settings).table_in_key == ""
