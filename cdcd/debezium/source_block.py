"""The field `source` of Debezium's events, and their last fields, in pieces that are made once a transaction.

Before: `event_encoder` knows the transaction, its change, and the table.
After: `event_encoder` writes the pieces around the position of the change.
Source: Debezium's `SourceInfo` and `PostgresSourceInfoStructMaker`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from cdcd.debezium.connect_schema import INT64, STRING, Schema
from cdcd.debezium.json_text import quoted
from cdcd.debezium.modes import DEBEZIUM_VERSION

LSN: Final = b"\0"
"""Stands for the LSN of the change in `value`. No JSON has this byte."""

SOURCE_SCHEMA = Schema(
    "struct",
    "io.debezium.connector.postgresql.Source",
    1,
    fields=(
        ("version", STRING),
        ("connector", STRING),
        ("name", STRING),
        ("ts_ms", INT64),
        (
            "snapshot",
            Schema(
                "string",
                "io.debezium.data.Enum",
                1,
                parameters=(
                    (
                        "allowed",
                        "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental",
                    ),
                ),
                is_optional=True,
                default=b'"false"',
            ),
        ),
        ("db", STRING),
        ("sequence", STRING.optional),
        ("ts_us", INT64.optional),
        ("ts_ns", INT64.optional),
        ("schema", STRING),
        ("table", STRING),
        ("txId", INT64.optional),
        ("lsn", INT64.optional),
        ("xmin", INT64.optional),
        ("origin", STRING.optional),
        ("origin_lsn", INT64.optional),
    ),
)


class SourceBlock:
    """The pieces of `source`, in their order, for the events of one transaction.

    `head` comes first, then the LSN of the change, then `middle`, the table's piece, `xid`, the LSN again, and `tail`.
    """

    def __init__(self, prefix: str, database: str) -> None:
        self._begin = (
            b'"source":{"version":' + quoted(DEBEZIUM_VERSION) + b',"connector":"postgresql","name":' + quoted(prefix)
        )
        self._database = quoted(database)
        self._prefix = quoted(prefix)
        self.head = b""
        self.middle = b""
        self.xid = b""
        self.tail = b""
        self.version: i64 = 0
        """Another number: `value` may give other values."""
        self._ts_us: i64 = 0
        self._xid: i64 = 0
        self._before = b""
        self._is_snapshot = False
        self._origin = ("", 0)

    def begin(self, ts_us: i64, xid: i64, last_commit: i64, is_snapshot: bool) -> None:
        """Begin a transaction, or a snapshot; `ts_us`: microseconds since 1970-01-01 UTC.

        `xid`: 0 for what belongs to no transaction. `last_commit`: where the transaction before ends; 0: none came yet.
        """
        before = b"null" if last_commit == 0 else b'\\"%d\\"' % int(last_commit)
        self.head = b"".join(
            (
                self._begin,
                b',"ts_ms":%d' % (int(ts_us) // 1000),
                b',"snapshot":"true"' if is_snapshot else b',"snapshot":"false"',
                b',"db":' + self._database,
                b',"sequence":"[' + before + b',\\"',
            )
        )
        self.middle = b'\\"]","ts_us":%d,"ts_ns":%d,' % (int(ts_us), int(ts_us) * 1000)
        self._ts_us, self._xid, self._before, self._is_snapshot = ts_us, xid, before, is_snapshot
        self.xid = b',"txId":' + (b"null" if xid == 0 else str(int(xid)).encode()) + b',"lsn":'
        self.origin("", 0)

    def origin(self, name: str, lsn: i64) -> None:
        """Note the replication origin of the open transaction, and its LSN there."""
        self.version += 1
        self._origin = (name, int(lsn))
        self.tail = b',"xmin":null,"origin":null,"origin_lsn":null}'
        if name:
            self.tail = b',"xmin":null,"origin":%s,"origin_lsn":%d}' % (quoted(name), int(lsn))

    def value(self, field: str) -> bytes:
        """The JSON of one field, but for `schema` and `table`; LSN stands where the LSN of the change does."""
        name, lsn = self._origin
        match field:
            case "version":
                return quoted(DEBEZIUM_VERSION)
            case "connector":
                return b'"postgresql"'
            case "name":
                return self._prefix
            case "ts_ms":
                return b"%d" % (int(self._ts_us) // 1000)
            case "ts_us":
                return b"%d" % int(self._ts_us)
            case "ts_ns":
                return b"%d" % (int(self._ts_us) * 1000)
            case "snapshot":
                return b'"true"' if self._is_snapshot else b'"false"'
            case "db":
                return self._database
            case "sequence":
                return b'"[' + self._before + b',\\"' + LSN + b'\\"]"'
            case "txId" if self._xid:
                return b"%d" % int(self._xid)
            case "lsn":
                return LSN
            case "origin" if name:
                return quoted(name)
            case "origin_lsn" if name:
                return b"%d" % lsn
        return b"null"


def table_piece(schema: str, table: str) -> bytes:
    """The table's piece of `source`."""
    return b'"schema":' + quoted(schema) + b',"table":' + quoted(table)


def clock_piece(now_ns: int) -> bytes:
    """The last fields of an event: when it was made, in nanoseconds since 1970-01-01 UTC."""
    return b'","ts_ms":%d,"ts_us":%d,"ts_ns":%d}' % (now_ns // 1_000_000, now_ns // 1000, now_ns)
