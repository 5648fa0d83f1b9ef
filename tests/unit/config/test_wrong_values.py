from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from cdcd.config.settings import NAMES, Settings
from cdcd.config.wrong_values import wanted

MINIMAL: dict[str, Any] = {"source": {"dsn": "host=db"}, "sink": {"bootstrap_servers": "k"}}


@pytest.mark.parametrize("key", [key for key in NAMES.known() if "." in key])
@pytest.mark.parametrize("value", ["", "x", -1, 1e30, True, (), {}, [[]], object()], ids=repr)
def test_no_refusal_of_any_setting_needs_the_words_of_a_programmer(key: str, value: Any) -> None:
    section, _, name = key.partition(".")
    try:
        Settings(**{**MINIMAL, section: {**MINIMAL.get(section, {}), name: value}})
    except ValidationError as error:
        said = wanted(error.errors(include_url=False, include_input=False))
        assert said.startswith("must ")
        assert not {"input", "valid", "parse", "this"} & {*said.split()}, said


def test_a_bound_is_told_with_its_number() -> None:
    assert wanted([{"type": "less_than_equal", "msg": "", "ctx": {"le": 65_535}}]) == "must be 65,535 or less"
