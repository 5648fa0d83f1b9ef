"""Which tables a Debezium connector captures, by its lists of regular expressions. Pure.

Before: `connector_file` has the options. After: `handover` compares them with the publication.
Source: Debezium 3.7, `RelationalTableFilters`; Java, `java.util.regex.Pattern`: without more flags it takes the letters
of ASCII alone for words, and for letters in two cases.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping

from cdcd.errors import SettingsError
from cdcd.migration.name_patterns import split_list


class CapturedTables:
    """The tables of one connector."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises SettingsError for an expression that Python does not understand as Java does."""
        self._include_tables = _expressions(options, "table.include.list")
        self._exclude_tables = _expressions(options, "table.exclude.list")
        self._include_schemas = _expressions(options, "schema.include.list")
        self._exclude_schemas = _expressions(options, "schema.exclude.list")

    def has(self, schema: str, table: str) -> bool:
        """Whether the connector captures this table."""
        name = f"{schema}.{table}"
        if self._include_schemas and not _matches(self._include_schemas, schema):
            return False
        if self._include_tables:
            return _matches(self._include_tables, name)
        return not (_matches(self._exclude_tables, name) or _matches(self._exclude_schemas, schema))


def _expressions(options: Mapping[str, str], option: str) -> list[re.Pattern[str]]:
    found = []
    for each in split_list(options.get(option, "")):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)  # Java has sets of sets, which Python reads otherwise
                found.append(re.compile(each, re.IGNORECASE | re.ASCII))
        except (re.error, FutureWarning, OverflowError, RecursionError):
            raise SettingsError(
                f"{option} has a regular expression that cdcd does not understand: {each[:200]}",
                "Write it in another way in the file that the command reads: names are enough",
                code="arguments-invalid",
            ) from None
    return found


def _matches(expressions: list[re.Pattern[str]], name: str) -> bool:
    return any(each.fullmatch(name) for each in expressions)
