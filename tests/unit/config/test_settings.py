from __future__ import annotations

from cdcd.config.settings import NAMES


def test_every_number_has_bounds_and_every_measure_ends_in_its_unit() -> None:
    counts = {"partitions", "replication_factor", "port", "workers"}
    for section, model in NAMES.sections.items():
        for name, field in model.model_fields.items():
            if field.annotation not in (int, float):
                continue
            limits = {type(rule).__name__ for rule in field.metadata}
            assert {"Ge", "Le"} <= limits, f"{section}.{name} has no bounds"
            unit = name.removesuffix("_max").rpartition("_")[2]
            assert name in counts or unit in {"s", "ms", "bytes", "rows"}, f"{section}.{name} has no unit"
