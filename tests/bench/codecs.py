"""How long each codec takes for one value, in nanoseconds, in binary and in text.

    python tests/bench/codecs.py [--compile]

Measures the imported cdcd's codecs, called from plain Python, and says whether they are compiled. With --compile it
then compiles the checkout's codecs, with this file's loop, and measures those. The best of many short runs counts.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs import base
from cdcd.avro.codecs.arrays import Array
from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.datetimes import Date, Time, Timestamp
from cdcd.avro.codecs.extensions import Hstore
from cdcd.avro.codecs.floats import Float4, Float8
from cdcd.avro.codecs.integers import Bool, Int2, Int4, Int8
from cdcd.avro.codecs.interval import Interval
from cdcd.avro.codecs.numeric import Decimal, NumericText
from cdcd.avro.codecs.text import Bytea, Text, Uuid, VersionedText


def numeric(negative: bool, weight: int, scale: int, *digits: int) -> bytes:
    return struct.pack(f">hhHH{len(digits)}h", len(digits), weight, 0x4000 * negative, scale, *digits)


def array(element_oid: int, *elements: bytes) -> bytes:
    header = struct.pack(">iiiii", 1, 0, element_oid, len(elements), 1)
    return header + b"".join(struct.pack(">i", len(element)) + element for element in elements)


JSON = b'{"sku": "A-1234567", "qty": 3, "tags": ["new", "sale"]}'

VALUES: list[tuple[str, Codec, bytes, bytes]] = [
    ("bool", Bool(), b"\1", b"t"),
    ("int2", Int2(), struct.pack(">h", 1234), b"1234"),
    ("int4", Int4(), struct.pack(">i", 12345678), b"12345678"),
    ("int8", Int8(), struct.pack(">q", 1234567890123), b"1234567890123"),
    ("float4", Float4(), struct.pack(">f", 1234.5), b"1234.5"),
    ("float8", Float8(), struct.pack(">d", 1234.5678), b"1234.5678"),
    ("float8, 17 digits", Float8(), struct.pack(">d", 0.1 + 0.2), b"0.30000000000000004"),
    ("numeric(12,2)", Decimal(12, 2), numeric(False, 1, 2, 123, 4567, 8900), b"1234567.89"),
    ("numeric(38,10)", Decimal(38, 10), numeric(False, 4, 10, *[1234] * 7), b"12341234123412341234.1234123400"),
    ("numeric", NumericText(), numeric(False, 1, 2, 123, 4567, 8900), b"1234567.89"),
    ("text, 8 bytes", Text(), b"shipped!", b"shipped!"),
    ("text, 35 bytes", Text(), b"a text of thirty-five bytes, or so.", b"a text of thirty-five bytes, or so."),
    ("text, 1,000 bytes", Text(), b"x" * 1000, b"x" * 1000),
    ("jsonb, 55 bytes", VersionedText("jsonb"), b"\1" + JSON, JSON),
    ("uuid", Uuid(), bytes(range(16)), b"00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ("bytea, 16 bytes", Bytea(), bytes(range(16)), b"\\x000102030405060708090a0b0c0d0e0f"),
    ("date", Date(), struct.pack(">i", 9000), b"2024-08-22"),
    ("time", Time(), struct.pack(">q", 45296789000), b"12:34:56.789"),
    ("timestamptz", Timestamp(with_zone=True), struct.pack(">q", 777646096123456), b"2024-08-22 12:34:56.123456+00"),
    ("interval", Interval(), struct.pack(">qii", 14706789000, 3, 14), b"1 year 2 mons 3 days 04:05:06.789"),
    ("int4[5]", Array(Int4(), "_int4", ","), array(23, *[struct.pack(">i", n) for n in range(5)]), b"{0,1,2,3,4}"),
    ("text[3]", Array(Text(), "_text", ","), array(25, b"ab", b"c d", b"e"), b'{ab,"c d",e}'),
    ("hstore", Hstore(), struct.pack(">ii", 1, 1) + b"a" + struct.pack(">i", 1) + b"1", b'"a"=>"1"'),
]


def repeat(codec: Codec, binary: bool, frame: bytes, size: i64, times: i64, out: BytesWriter) -> None:
    """Transcode the value at offset 5 of the frame `times` times; native code if this file is compiled."""
    while times > 0:
        if binary:
            codec.binary(frame, 5, size, out)
        else:
            codec.text(frame, 5, size, out)
        times -= 1


def nanoseconds(codec: Codec, binary: bool, value: bytes, seconds: float) -> float:
    """Nanoseconds a value, the best of many short runs: a disturbance can only make a run slower."""
    out = BytesWriter()
    frame = b"frame" + value + b"frame"
    best = float("inf")
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        repeat(codec, binary, frame, len(value), 200, out)
        best = min(best, (time.perf_counter() - start) / 200)
        out.truncate(0)
    return best * 1e9


def run(seconds: float) -> None:
    """Measure and print."""
    kind = "plain Python" if str(base.__file__).endswith(".py") else "compiled by mypyc"
    print(f"{kind:20}{'binary ns':>12}{'text ns':>12}")
    for name, codec, binary, text in VALUES:
        figures = [nanoseconds(codec, mode, binary if mode else text, seconds) for mode in (True, False)]
        print(f"{name:20}{figures[0]:12.0f}{figures[1]:12.0f}", flush=True)


def run_compiled(seconds: float) -> None:
    """Compile the codecs and this file in a temporary directory, in one group as in the wheel, and measure there."""
    project = Path(__file__).parents[2]
    with TemporaryDirectory() as directory:
        copy = Path(directory)
        shutil.copytree(project / "cdcd", copy / "cdcd", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        shutil.copy(__file__, copy / "bench_codecs.py")
        imported = {name for name in sys.modules if name.startswith("cdcd.avro.")}
        paths = [Path(*name.split(".")).with_suffix(".py") for name in sorted(imported)]
        files = [str(path) for path in paths if (copy / path).exists()]  # no packages, as in the wheel
        subprocess.run(["mypyc", *files, "bench_codecs.py"], cwd=copy, check=True, stdout=subprocess.DEVNULL)
        program = f"import bench_codecs; bench_codecs.run({seconds})"
        subprocess.run([sys.executable, "-c", program], cwd=copy, check=True, env={**os.environ, "PYTHONPATH": "."})


if __name__ == "__main__":
    run(0.1)
    if "--compile" in sys.argv:
        run_compiled(0.1)
