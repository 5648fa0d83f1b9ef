"""Says in plain words what a setting's value must be. Pure.

Before: pydantic has refused a value, and gives the type of the problem with its bounds. After: `layers` puts the words
behind the setting's name.
Source: pydantic, "Validation Errors".

No text has the value itself, because it may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_TYPES: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "a text in quotes",
    "tuple": 'a list, as in ["a", "b"]',
    "list": 'a list, as in ["a", "b"]',
    "dict": "a table, as in { name = 'value' }",
    "model": "a section, as in [source]",
}
"""What a value of a type is, by the first part of pydantic's `bool_parsing`, `int_type` and so on."""

_BOUNDS: Final = {
    "greater_than_equal": "{ge:,} or more",
    "greater_than": "more than {gt:,}",
    "less_than_equal": "{le:,} or less",
    "less_than": "less than {lt:,}",
    "string_too_short": "a text of {min_length:,} or more characters",
    "string_too_long": "a text of {max_length:,} or fewer characters",
    "too_short": "a list of {min_length:,} or more",
    "too_long": "a list of {max_length:,} or fewer",
    "literal_error": "{expected}",
    "finite_number": "a finite number",
}


def wanted(problems: Sequence[Mapping[str, Any]]) -> str:
    """What the value must be, such as `must be true or false`. `problems`: pydantic's, all of one setting."""
    own = [problem["msg"].removeprefix("Value error, ") for problem in problems if problem["type"] == "value_error"]
    if own:
        return str(own[0])
    if problems[0]["type"] == "missing":
        return "is not set"
    nouns = list(dict.fromkeys(map(_noun, problems)))
    if len(nouns) > 1:  # a field with several types has a problem for each
        nouns = [each for noun in nouns for each in re.split(" or ", noun)]
        nouns = [f"{', '.join(nouns[:-1])} or {nouns[-1]}"]
    return f"must be {nouns[0]}"


def _noun(problem: Mapping[str, Any]) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    known = _TYPES.get(kind.partition("_")[0])
    return known or f"what this says: {problem['msg'][0].lower()}{problem['msg'][1:]}"
