"""What a person can do after Spark has failed: whether to start the job again, which Java and which jars it lacks.

Before: `commands` has an error of Spark, or of a JVM that has ended. After: a person reads the hint.
Source: PySpark, error conditions; Apache Ivy, the messages of a resolution; Spark 4, "Downloading" (Java 17 or 21) and
"Configuration" (spark.jars.packages, spark.jars.excludes).
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
    ArithmeticException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    ParseException,
    PySparkAttributeError,
    PySparkTypeError,
    PySparkValueError,
)

from cdcd.errors import CdcdError
from cdcd.spark.packages import packages

LASTING: Final = (
    AnalysisException, ArithmeticException, DateTimeException, IllegalArgumentException, NumberFormatException,
    ParseException, PySparkAttributeError, PySparkTypeError, PySparkValueError,
)  # fmt: skip
"""Spark refuses what it is asked for, and would do so again."""
FILES_GONE: Final = re.compile(r"FILE_NOT_EXIST|org\.apache\.iceberg\.exceptions\.NotFoundException")
"""A file of a table is not there, and will not come again."""
LOAD_AGAIN: Final = (
    "VACUUM or another job has removed them: load the table again with `cdcd spark snapshot`, and keep old files for "
    "some days"
)
_OF_PY4J: Final = re.compile(r"An error occurred while calling \S+\s+: (?=\S)")
_LACKS_CLASS: Final = re.compile(r"ClassNotFoundException|NoClassDefFoundError|DATA_SOURCE_NOT_FOUND|Failed to find")
_HAS_NO_GATEWAY: Final = "[JAVA_GATEWAY_EXITED]"
_JAVA_VERSION: Final = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_UNTRUSTED: Final = re.compile("PKIX path (building|validation) failed")
_UNRESOLVED: Final = re.compile(r"(?:unresolved dependency|download failed): ([^\s#]+)#([^\s;]+);([^\s:!,\]]+)")
_IMPORT: Final = "keytool -importcert -cacerts -storepass changeit -noprompt -alias proxy -file ca.pem"
_FILES: Final = '"spark.jars" = "/jars/a.jar,/jars/b.jar"'
_JARS: Final = "with --jars or --packages of spark-submit, or with spark.jars or spark.jars.packages under [spark]"


def message(error: BaseException) -> str:
    """The first line that says what has failed: Py4J's own one only names a Java method."""
    return _OF_PY4J.sub("", str(error).strip()).split("\n", 1)[0].rstrip(".") or type(error).__name__


def hint(error: BaseException, message: str) -> str:
    """What helps after `error`. `message`: its first line; the others may show more, such as a class that is missing.

    A job goes on where it was. But it fails again as long as a jar is missing, or Spark refuses what it asks for.
    """
    if message.startswith(_HAS_NO_GATEWAY):
        return f"See its output above. {java()}"
    if _LACKS_CLASS.search(str(error)):
        return f"A jar is missing in the session. Name these {_JARS}: {packages()}"
    if FILES_GONE.search(str(error)):
        return f"Files of a published version are gone. {LOAD_AGAIN}"
    if isinstance(error, LASTING):
        return "Spark refuses what the job asks for, and will do so again: correct that. Spark's own log says more"
    return "Spark's own log says more. Start the job again: it goes on where it was"


def not_started(text: str, options: Mapping[str, str], output: str) -> CdcdError:
    """The error of a session that could not be made with `options`. `output`: what the JVM wrote, or its end."""
    wanted = [name for name in options.get("spark.jars.packages", "").split(",") if name]
    missing = unresolved(output)
    if _UNTRUSTED.search(output):
        message = "Java does not trust the certificate of the server that has the jars"
        cure = (
            f"If a proxy inspects TLS, import its CA into Java's truststore: {_IMPORT}. Or fetch the jars elsewhere, "
            f"and name the files under [spark]: {_FILES}. {java()}"
        )
    elif missing and (kept := [name for name in wanted if name not in missing]):
        message = f"Java could not fetch {', '.join(missing)}"
        artifact = missing[0].split(":")[1]
        excludes = ",".join(name.rpartition(":")[0] for name in missing)
        cure = (
            "Leave it out, fetch its nearest version that there is, and name that file under [spark]: "
            f'"spark.jars.packages" = "{",".join(kept)}", "spark.jars.excludes" = "{excludes}", '
            f'"spark.jars" = "/jars/{artifact}-VERSION.jar"'
        )
    elif missing:
        message = f"Java could not fetch any of the jars: {', '.join(missing)}"
        cure = (
            "Let Java reach Maven Central, or name your mirror by spark.jars.repositories under [spark]. Or fetch the "
            f"jars elsewhere, with those that they need, and name the files: {_FILES}"
        )
    else:
        message = text.strip().split("\n", 1)[0].rstrip(".")
        cure = f"See its output above. {java()}"
    return CdcdError(f"Spark failed: {message}", cure, code="spark-failed")


def unresolved(output: str) -> list[str]:
    """The jars, as group:artifact:version, that Spark's Ivy says it did not find or could not fetch."""
    return list(dict.fromkeys(":".join(found) for found in _UNRESOLVED.findall(output)))


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
