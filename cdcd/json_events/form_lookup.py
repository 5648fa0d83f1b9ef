"""Builds the JSON form of an Avro type.

Before: a codec of `avro.codecs` says its type. After: `values` has the form of each column.

The fields of JSON have PostgreSQL's names, which JSON can hold as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cdcd.avro.type_walk import Makers, made_of
from cdcd.json_events import forms
from cdcd.json_events.forms import Form


def _record() -> tuple[Form, Callable[[str, Form], None]]:
    made = forms.Record()
    return made, made.add


_FORMS: Final = Makers[Form](
    simple={
        "int": forms.Int, "long": forms.Int, "boolean": forms.Boolean, "float": forms.Float, "double": forms.Double,
        "string": forms.Text, "bytes": forms.Bytes, "date": forms.Date, "time-micros": forms.Time, "uuid": forms.Text,
        "timestamp-micros": lambda: forms.Timestamp(with_zone=True),
        "local-timestamp-micros": lambda: forms.Timestamp(with_zone=False),
    },
    decimal=lambda _precision, scale: forms.Decimal(scale),
    nullable=forms.Nullable,
    array=forms.Array,
    map=forms.Map,
    record=_record,
)  # fmt: skip


def form_of(avro: Any) -> Form:
    """The form of a type, as Python values for JSON have it."""
    return made_of(avro, _FORMS)
