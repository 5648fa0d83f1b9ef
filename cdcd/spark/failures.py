"""What a person can do after Spark has failed: whether to start the job again, which Java and which jars it lacks.

Before: `commands` has an error of Spark, or of a JVM that has ended. After: a person reads the hint.
Source: PySpark, error conditions; Spark 4, "Downloading" (Java 17 or 21); "Configuration", spark.jars.packages.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkAttributeError,
    PySparkTypeError,
    PySparkValueError,
)

from cdcd.errors import CdcdError
from cdcd.spark.packages import packages

_LASTING: Final = (
    AnalysisException, IllegalArgumentException, ParseException, PySparkAttributeError, PySparkTypeError,
    PySparkValueError,
)  # fmt: skip
_LACKS_CLASS: Final = re.compile(r"ClassNotFoundException|NoClassDefFoundError|DATA_SOURCE_NOT_FOUND|Failed to find")
_HAS_NO_GATEWAY: Final = "[JAVA_GATEWAY_EXITED]"
_JAVA_VERSION: Final = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_JARS: Final = "with --jars or --packages of spark-submit, or with spark.jars or spark.jars.packages under [spark]"


def hint(error: BaseException, message: str) -> str:
    """What helps after `error`. `message`: its first line; the others may show more, such as a class that is missing.

    A job goes on where it was. But it fails again as long as a jar is missing, or Spark refuses what it asks for.
    """
    if message.startswith(_HAS_NO_GATEWAY):
        return f"See its output above. {java()}"
    if _LACKS_CLASS.search(str(error)):
        return f"A jar is missing in the session. Name these {_JARS}: {packages()}"
    if isinstance(error, _LASTING):
        return "Spark refuses what the job asks for, and will do so again: correct that. Spark's own log says more"
    return "Spark's own log says more. Start the job again: it goes on where it was"


def not_started(text: str, options: Mapping[str, str]) -> CdcdError:
    """The error of a session that could not be made with `options`. Java's own output, above it, says why."""
    message = text.strip().split("\n", 1)[0].rstrip(".")
    wanted = options.get("spark.jars.packages", "")
    jars = (
        f". If its output says `unresolved dependency`, a jar could not be fetched: of {wanted}. Give the jars "
        f"{_JARS}, or use the PySpark whose jars you have: 4.0 or 4.1.3"
    )
    return CdcdError(
        f"Spark failed: {message}", f"See its output above. {java()}{jars if wanted else ''}", code="spark-failed"
    )


def java(environment: Mapping[str, str] = os.environ) -> str:
    """Which Java Spark finds with these variables, as a sentence without its full stop."""
    needs = "Spark needs Java 17 or 21"
    home = environment.get("JAVA_HOME", "")
    if home:
        if not (Path(home) / "bin" / "java").is_file():
            return f"{needs}, and JAVA_HOME names {home}, where there is no bin/java"
        return f"{needs}, and JAVA_HOME names {home}{_version(Path(home))}"
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        return f"{needs}, and there is none: JAVA_HOME is not set, and PATH has no java. Install one, or set JAVA_HOME"
    return f"{needs}, and PATH has {found}{_version(Path(found).resolve().parent.parent)}"


def _version(home: Path) -> str:
    """`, which is Java 11.0.2`; empty if its folder does not tell."""
    try:
        found = _JAVA_VERSION.search((home / "release").read_text(errors="replace"))
    except OSError:
        return ""
    return f", which is Java {found[1]}" if found else ""
