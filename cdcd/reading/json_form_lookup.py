"""Builds the form that turns JSON into the values of an Avro schema, as `json_events.form_lookup` does the way there.

Before: the schema of a table. After: `json_translator` has the form of each of its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cdcd.avro.type_walk import Makers, made_of
from cdcd.reading import json_forms as forms
from cdcd.reading.json_forms import Form


def _record() -> tuple[Form, Callable[[str, Form], None]]:
    made = forms.Record()
    return made, made.add


_FORMS: Final = Makers[Form](
    simple={
        "int": lambda: forms.Int(32), "long": lambda: forms.Int(64), "boolean": forms.Boolean, "float": forms.Float,
        "double": forms.Double, "string": forms.Text, "bytes": forms.Bytes, "date": forms.Date, "uuid": forms.Text,
        "time-micros": forms.Time, "timestamp-micros": lambda: forms.Timestamp(with_zone=True),
        "local-timestamp-micros": lambda: forms.Timestamp(with_zone=False),
    },
    decimal=forms.Decimal,
    nullable=forms.Nullable,
    array=forms.Array,
    map=forms.Map,
    record=_record,
)  # fmt: skip


def form_of(avro: Any) -> Form:
    """The form of a type."""
    return made_of(avro, _FORMS)
