"""A mirror's tables as of its newest published run, read by engines that nobody here wrote: DuckDB and PyIceberg.

Before: a folder with the tables of a mirror, and its `cdcd_runs`. After: `spark/test_reader_views.py`,
`spark/test_cluster.py`, and `spark/chaos.py`, which asks at every poll.

The newest row of `cdcd_runs` that is published names each table's version, as the manual says it. The reader is a
process of its own, which answers one line for each line that it gets.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Self

from servers.python_packages import python_with

_PACKAGES = {
    "delta": ("duckdb==1.4.4", "duckdb-ext-delta==1.4.4.20260205"),
    "iceberg": ("pyiceberg[pyarrow]==0.12.0",),
}

_DUCKDB = """
import duckdb, glob, json, sys
[extension] = glob.glob(sys.prefix + "/lib/python3*/site-packages/duckdb_ext/extensions/*/*/delta.duckdb_extension")

def read(folder, column):
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        [(lsn, tables)] = connection.execute(
            f"SELECT lsn, tables FROM delta_scan('{folder}/cdcd_runs')"
            " WHERE state = 'published' ORDER BY run DESC LIMIT 1"
        ).fetchall()
        total = 0
        for number, table in enumerate(tables):
            path = folder + "/" + table["target"].rpartition(".")[2].strip("`")
            connection.execute(f"ATTACH '{path}' AS t{number} (TYPE delta, VERSION {table['version']})")
            total += connection.execute(f"SELECT sum({column}) FROM t{number}").fetchone()[0] or 0
        return int(lsn), int(total)
"""

_PYICEBERG = """
import glob, json, re, sys
from pyiceberg.table import StaticTable

def opened(folder):
    files = glob.glob(folder + "/metadata/v*.metadata.json")
    return StaticTable.from_metadata(max(files, key=lambda file: int(re.search(r"v(\\d+)[.]metadata", file)[1])))

def read(folder, column):
    runs = opened(folder + "/cdcd_runs").scan(row_filter="state = 'published'").to_arrow().to_pylist()
    run, total = max(runs, key=lambda row: row["run"]), 0
    for table in run["tables"]:
        path = folder + "/" + table["target"].rpartition(".")[2].strip("`")
        rows = opened(path).scan(snapshot_id=table["version"]).to_arrow()
        total += sum(rows[column].to_pylist())
    return int(run["lsn"]), int(total)
"""

_ANSWER = """
for _ in sys.stdin:
    try:
        (lsn, total), error = read(*sys.argv[1:]), None
    except Exception as caught:
        lsn, total, error = None, None, f"{type(caught).__name__}: {caught}"
    print(json.dumps({"lsn": lsn, "total": total, "error": error}), flush=True)
"""


class LakeReader:
    """One engine on one folder, for a `with` block."""

    def __init__(self, form: str, folder: Path, column: str) -> None:
        """`folder`: of all tables of the mirror. `column`: of numbers, which each of the tables has."""
        script = {"delta": _DUCKDB, "iceberg": _PYICEBERG}[form] + _ANSWER
        command = [str(python_with(*_PACKAGES[form])), "-c", script, str(folder), column]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> tuple[int, int]:
        """The LSN of the newest published run, and the sum of the column over all tables; raises LookupError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["error"]:
            raise LookupError(answer["error"])
        return answer["lsn"], answer["total"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
