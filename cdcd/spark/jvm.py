"""Starts Spark's JVM and a session in it, and keeps what the JVM wrote until then: PySpark's error does not say why.

Before: `commands` has the session's settings. After: `failures` reads the output of a JVM that ended.
Source: PySpark, `pyspark.java_gateway.launch_gateway`: its `popen_kwargs` are for capturing the JVM's output.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from cdcd.spark import failures

_STDERR: Final = 2
_PART_BYTES: Final = 1 << 16
_KEPT_BYTES: Final = 1 << 18
_END_WAIT_S: Final = 5.0
_HAVE_A_JVM: Final = {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}
"""Variables of spark-submit and Spark Connect, which have started a JVM."""


class ForwardedOutput:
    """The standard error of a process: what comes goes on to ours at once, and the end of it is kept."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._kept = bytearray()
        self._thread = Thread(target=self._forward, name="jvm output", daemon=True)
        self._thread.start()

    @contextmanager
    def given(self) -> Iterator[int]:
        """The file descriptor for the process, which inherits it. After the block the process alone has it."""
        try:
            yield self._write
        finally:
            os.close(self._write)

    def text(self) -> str:
        """The last 256 KiB of a process that has ended."""
        self._thread.join(_END_WAIT_S)
        return bytes(self._kept).decode(errors="replace")

    def _forward(self) -> None:
        """Read until the process ends, even if nobody reads ours: the process would wait for room in the pipe."""
        with os.fdopen(self._read, "rb", buffering=0) as source:
            while part := source.read(_PART_BYTES):
                self._kept += part
                del self._kept[:-_KEPT_BYTES]
                with suppress(OSError):
                    while part:
                        part = part[os.write(_STDERR, part) :]


def start(options: Mapping[str, str]) -> SparkSession:
    """A session with these settings. Raises CdcdError, which says what a JVM that could not start has lacked."""
    builder: Any = SparkSession.builder
    conf: Any = SparkConf()
    for name, value in options.items():
        builder = builder.config(name, value)
        conf.set(name, value)
    output = ForwardedOutput()
    try:
        with output.given() as stderr:
            if not os.environ.keys() & _HAVE_A_JVM:
                gateway = launch_gateway(conf, {"stderr": stderr})
                SparkContext(conf=conf, gateway=gateway)
        session: SparkSession = builder.getOrCreate()
    except PySparkException as error:
        raise failures.not_started(str(error), options, output.text()) from error
    return session
