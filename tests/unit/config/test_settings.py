from __future__ import annotations

from cdcd.config.settings import NAMES, SinkSettings, SourceSettings


def test_every_number_has_bounds_and_every_measure_ends_in_its_unit() -> None:
    counts = {"partitions", "replication_factor", "port", "workers"}
    for section, model in NAMES.sections.items():
        for name, field in model.model_fields.items():
            if field.annotation not in (int, float):
                continue
            limits = {type(rule).__name__ for rule in field.metadata}
            assert {"Ge", "Le"} <= limits, f"{section}.{name} has no bounds"
            unit = name.removesuffix("_max").removesuffix("_per_second").rpartition("_")[2]
            assert name in counts or unit in {"s", "ms", "bytes", "rows"}, f"{section}.{name} has no unit"


def test_a_copy_with_other_values_logs_in_with_them() -> None:
    """`cdcd init` asked Kafka as the daemon's user for what only the administrator may do."""
    sink = SinkSettings(bootstrap_servers="b", prefix="p", librdkafka={"sasl.username": "cdcd"})
    source = SourceSettings(dsn="user=cdcd", slot="s", primary_dsn="host=a")
    assert (sink.client_properties["sasl.username"], source.login.dsn) == ("cdcd", "user=cdcd")
    assert source.primary_login is not None
    sink = sink.model_copy(update={"librdkafka": {"sasl.username": "admin"}})
    source = source.model_copy(update={"dsn": "user=postgres", "primary_dsn": None})
    assert (sink.client_properties["sasl.username"], source.login.dsn) == ("admin", "user=postgres")
    assert source.primary_login is None
