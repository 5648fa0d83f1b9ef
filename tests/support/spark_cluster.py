"""A standalone Spark cluster on loopback, from the installed PySpark: a master and workers, each a process of its own.

Before: `servers.processes` starts, guards and ends each process. After: `spark/test_cluster.py`.
Source: Spark, "Spark Standalone Mode". An executor is a child of its worker, which starts another one in its place.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyspark
from servers.jars import find_java, say_on_stderr
from servers.processes import Server, children

_EXECUTOR = b"CoarseGrainedExecutorBackend"


class Node(Server):
    """One master or worker."""

    def __init__(self, what: str, is_ready: str, *arguments: str) -> None:
        """`what`: the last part of its class's name. `is_ready`: what its log says once it serves."""
        super().__init__(what.lower(), home=None, data=None, port=None, python="", say=say_on_stderr)
        java = Path(find_java()).resolve()
        self.environment |= {"JAVA_HOME": str(java.parent.parent), "SPARK_DAEMON_MEMORY": "256m"}
        self.environment |= {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_IP": "127.0.0.1"}
        self.environment |= {"SPARK_LOCAL_DIRS": str(self.directory / "local")}
        self._class = f"org.apache.spark.deploy.{what.lower()}.{what}"
        self._is_ready = is_ready
        self._arguments = arguments

    def _prepare(self) -> list[str]:
        own = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        if self._class.endswith("Worker"):
            own += ["--work-dir", str(self.directory / "work")]
        return [f"{self.environment['SPARK_HOME']}/bin/spark-class", self._class, *own, *self._arguments]

    def _ready(self) -> bool:
        return self._is_ready in self.log.read_text()


class SparkCluster:
    """A master and `workers` workers of one core each, for a `with` block."""

    def __init__(self, workers: int, memory: str) -> None:
        """`memory`: of each worker, for its executors: "1g"."""
        self.master = Node("Master", "New state: ALIVE")
        self.url = f"spark://127.0.0.1:{self.master.port}"
        wanted = "--cores", "1", "--memory", memory
        self.workers = [
            Node("Worker", "Successfully registered with master", *wanted, self.url) for _ in range(workers)
        ]
        self._open = ExitStack()

    def executors(self) -> list[int]:
        """The process ids of the executors that run."""
        found = [pid for worker in self.workers for pid in children(worker.pid)]
        return [pid for pid in found if _EXECUTOR in _command(pid)]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for node in (self.master, *self.workers):
                stack.enter_context(node)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
