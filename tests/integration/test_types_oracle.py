"""PostgreSQL renders, we parse: for every type, values of a real server in binary and in text give the same Avro bytes,
the bytes read back as what was put in, and `render` of the binary form is PostgreSQL's own text.

The text form is the type's output function's, as the stream sends it; a cast to text differs (`true` for `t`).
"""

from __future__ import annotations

import io
import math
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import fastavro
import psycopg
import pytest
from librt.strings import BytesWriter

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.lookup import TypeOptions, codec_for, has_known_binary
from cdcd.errors import BinaryFormatUnsupported
from cdcd.source.pg_types import PgType

SESSION = "-c DateStyle=ISO,MDY -c IntervalStyle=postgres -c bytea_output=hex -c extra_float_digits=1 -c TimeZone=UTC"

ITSELF = object()  # the Avro value is the text
UNREPRESENTABLE = object()

Case = tuple[str, Any]


def same(*literals: str) -> list[Case]:
    return [(literal, ITSELF) for literal in literals]


def lost(*literals: str) -> list[Case]:
    return [(literal, UNREPRESENTABLE) for literal in literals]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def record(months: int, days: int, micros: int) -> dict[str, int]:
    return {"months": months, "days": days, "micros": micros}


def span(lower: Any, upper: Any, brackets: str = "[)", empty: bool = False) -> dict[str, Any]:
    return {
        "lower": lower,
        "upper": upper,
        "lower_inc": brackets[0] == "[",
        "upper_inc": brackets[1] == "]",
        "empty": empty,
    }


EMPTY = span(None, None, "()", empty=True)
LONG = "x" * 500 + "é" * 100

CASES: dict[str, list[Case]] = {
    "int2": [("0", 0), ("-1", -1), ("32767", 32767), ("-32768", -32768)],
    "int4": [("0", 0), ("-7", -7), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31))],
    "int8": [("0", 0), ("63", 63), ("64", 64), ("-65", -65), (str(2**63 - 1), 2**63 - 1), (str(-(2**63)), -(2**63))],
    "oid": [("0", 0), ("4294967295", 2**32 - 1)],
    "xid": [("3", 3), ("4294967295", 2**32 - 1)],
    "cid": [("3", 3), ("4294967295", 2**32 - 1)],
    "xid8": [(text, text) for text in ("0", str(2**63 - 1), str(2**63), str(2**64 - 1))],
    "bool": [("t", True), ("f", False)],
    "float8": [
        *(
            (text, float(text))
            for text in ("0", "-0", "1", "-1.5", "0.1", "1e15", "1e14", "123456789012345678", "1e-4")
        ),
        *((text, float(text)) for text in ("1e-5", "1e22", "1e23", "1e100", "5e-324", "2.2250738585072014e-308")),
        *((text, float(text)) for text in ("1.7976931348623157e308", "0.30000000000000004", "9007199254740993")),
        *((text, float(text)) for text in ("5.684341886080801e-14", "Infinity", "-Infinity", "NaN", "4.35", "8.41e21")),
    ],
    "float4": [
        *((text, float(text)) for text in ("0", "-0", "1", "-1.5", "0.25", "100000", "Infinity", "-Infinity", "NaN")),
        ("0.1", 0.10000000149011612),
        ("1e6", 1e6),
        ("1234567", 1234567.0),
        ("3.4028235e38", 3.4028234663852886e38),
        ("1e-45", 1.401298464324817e-45),
        ("1.1754944e-38", 1.1754943508222875e-38),
        ("16777216", 16777216.0),
        ("33554432", 33554432.0),
    ],
    "numeric": same(
        *("0", "1", "-1", "0.00", "10000", "100000000", "9999", "0.0001", "0.00001", "0.1230", "-12345.6789", "NaN"),
        *("1e30", "1e-30", "123456789012345678901234567890.123456789", "-0.5", "1000.10", "1.50000", "40000.0000400"),
        *("1e200", "1e-200"),
    ),
    "numeric(12,2)": [
        *((text, Decimal(text)) for text in ("0", "0.01", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "100", "10000")),
        *((text, Decimal(text)) for text in ("9999999999.99", "-9999999999.99", "10000.10", "99990000", "0.10")),
        *lost("NaN"),
    ],
    "numeric(18,0)": [(text, Decimal(text)) for text in ("999999999999999999", "-999999999999999999", "0", "10000")],
    "numeric(18,18)": [(text, Decimal(text)) for text in ("0.999999999999999999", "-0.000000000000000001", "0", "0.1")],
    "numeric(20,4)": [(text, Decimal(text)) for text in ("9999999999999999.9999", "-9999999999999999.9999", "0.0001")],
    "numeric(38,10)": [
        *((text, Decimal(text)) for text in ("9999999999999999999999999999.9999999999", "0", "-0.0000000001", "1")),
        *((text, Decimal(text)) for text in ("-9999999999999999999999999999.9999999999", "123456789.0000000001")),
    ],
    "numeric(39,0)": same("999999999999999999999999999999999999999", "0"),
    "text": same("", "a", "12345678", "Grüße 🐘", LONG, "a\tb\nc\\d'\"", "1234567890123456789012345678901234567890"),
    "varchar(10)": same("", "abc", "Grüße"),
    "bpchar": same("", "abc  "),
    "char(5)": [("ab", "ab   "), ("Grüße", "Grüße")],
    '"char"': [("a", "a"), ("", "")],
    "name": same("", "pg_class"),
    "xml": same("<a>é</a>", '<?xml version="1.0" standalone="yes"?><a/>'),
    "json": same('{"a": [1, 2,  null]}', "null", '"é"'),
    "jsonb": [('{"b": 1, "a": [1, 2.50, null]}', '{"a": [1, 2.50, null], "b": 1}'), ("null", "null"), ('""', '""')],
    "uuid": [
        ("00000000-0000-0000-0000-000000000000", uuid.UUID(int=0)),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", uuid.UUID(int=2**128 - 1)),
        ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        ("01234567-89ab-cdef-8123-456789abcdef", uuid.UUID("01234567-89ab-cdef-8123-456789abcdef")),
    ],
    "bytea": [
        ("\\x", b""),
        ("\\x00", b"\0"),
        ("\\xdeadBEEF09", b"\xde\xad\xbe\xef\x09"),
        ("\\x" + "7f" * 300, b"\x7f" * 300),
    ],
    "date": [
        ("1970-01-01", date(1970, 1, 1)),
        ("1969-12-31", date(1969, 12, 31)),
        ("2000-02-29", date(2000, 2, 29)),
        ("1900-02-28", date(1900, 2, 28)),
        ("0001-01-01", date(1, 1, 1)),
        ("9999-12-31", date(9999, 12, 31)),
        *lost(
            "0001-12-31 BC", "4713-01-01 BC", "10000-01-01", "294000-01-01", "5874897-12-31", "infinity", "-infinity"
        ),
        *lost("0001-02-29 BC"),
    ],
    "time": [
        ("00:00:00", time()),
        ("04:05:06", time(4, 5, 6)),
        ("04:05:06.7", time(4, 5, 6, 700000)),
        ("23:59:59.999999", time(23, 59, 59, 999999)),
        ("12:00:00.000001", time(12, 0, 0, 1)),
        *lost("24:00:00"),
    ],
    "timetz": same(
        "04:05:06.789+02",
        "00:00:00-05:30",
        "24:00:00+00",
        "12:00:00+15:59:59",
        "12:34:56.000001-15:59:59",
        "01:02:03-00:30",
    ),
    "timestamp": [
        ("1970-01-01 00:00:00", datetime(1970, 1, 1)),
        ("1969-12-31 23:59:59.999999", datetime(1969, 12, 31, 23, 59, 59, 999999)),
        ("2024-02-29 12:34:56.789", datetime(2024, 2, 29, 12, 34, 56, 789000)),
        ("0001-01-01 00:00:00", datetime(1, 1, 1)),
        ("9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ("2000-01-01 00:00:00.5", datetime(2000, 1, 1, 0, 0, 0, 500000)),
        *lost("0001-12-31 23:59:59.999999 BC", "10000-01-01", "294276-12-31 23:59:59.999999", "4713-01-01 00:00:00 BC"),
        *lost("infinity", "-infinity", "0044-03-15 12:00:00.25 BC"),
    ],
    "timestamptz": [
        ("1970-01-01 00:00:00+00", utc(1970, 1, 1)),
        ("2024-06-30 12:34:56.123456+02", utc(2024, 6, 30, 10, 34, 56, 123456)),
        ("0001-01-01 00:00:00+00", utc(1, 1, 1)),
        ("9999-12-31 23:59:59.999999+00", utc(9999, 12, 31, 23, 59, 59, 999999)),
        ("1999-12-31 23:59:59.1+00", utc(1999, 12, 31, 23, 59, 59, 100000)),
        *lost(
            "0001-12-31 23:59:59+00 BC", "10000-01-01 00:00:00+00", "infinity", "-infinity", "4713-01-01 00:00:00+00 BC"
        ),
    ],
    "interval": [
        ("0", record(0, 0, 0)),
        ("1 year", record(12, 0, 0)),
        ("-1 year", record(-12, 0, 0)),
        ("1 mon", record(1, 0, 0)),
        ("1 year 2 mons 3 days 04:05:06.789", record(14, 3, 14706789000)),
        ("-1 year -2 mons +3 days -04:05:06.789", record(-14, 3, -14706789000)),
        ("-1 day +00:00:01", record(0, -1, 1000000)),
        ("1 day -00:00:00.000001", record(0, 1, -1)),
        ("13 mons -1 days", record(13, -1, 0)),
        ("100 hours", record(0, 0, 360000000000)),
        ("178956970 years 7 mons 2147483647 days", record(2**31 - 1, 2**31 - 1, 0)),
        ("-178956970 years -8 mons -2147483648 days", record(-(2**31), -(2**31), 0)),
    ],
    "int4[]": [
        ("{}", []),
        ("{1,NULL,-3}", [1, None, -3]),
        *lost("{{1,2},{3,NULL}}", "[0:1]={1,2}", "[-1:0][2:3]={{1,2},{3,4}}", "{{{1}}}"),
    ],
    "int8[]": [("{" + ",".join(map(str, range(200))) + "}", list(range(200)))],
    "bool[]": [("{t,f,NULL}", [True, False, None]), *lost("{{t},{f}}")],
    "text[]": [
        ("{}", []),
        (
            '{"",a,"a b","a,b","{}","NULL",null,NULL,"\\"","\\\\"}',
            ["", "a", "a b", "a,b", "{}", "NULL", None, None, '"', "\\"],
        ),
        ('{"a\tb","c\nd",é,🐘,"null"," x","y\x0b"}', ["a\tb", "c\nd", "é", "🐘", "null", " x", "y\x0b"]),
        *lost('{{"a,b",NULL},{"",""}}', '[2:3]={"x y",z}'),
    ],
    "numeric(10,2)[]": [
        ("{1.5,NULL,-0.01}", [Decimal("1.50"), None, Decimal("-0.01")]),
        *lost("{1,NaN}", "{{1},{NaN}}"),
    ],
    "numeric[]": [("{1.50,NaN}", ["1.50", "NaN"])],
    "date[]": [("{2024-01-02}", [date(2024, 1, 2)]), *lost("{2024-01-02,infinity}", "{{infinity},{0044-03-15 BC}}")],
    "timestamptz[]": [("{2024-01-02 03:04:05+00}", [utc(2024, 1, 2, 3, 4, 5)]), *lost('{"infinity",-infinity}')],
    "uuid[]": [("{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", [uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")])],
    "bytea[]": [('{"\\\\x00ff",NULL}', [b"\0\xff", None]), *lost('{{"\\\\x00"}}')],
    "jsonb[]": [('{"{\\"a\\": \\"b\\\\\\\\c\\"}"}', ['{"a": "b\\\\c"}'])],
    "interval[]": [('{"1 day","-00:00:01"}', [record(0, 1, 0), record(0, 0, -1000000)])],
    "float8[]": [("{1.5,-Infinity,1e100}", [1.5, -math.inf, 1e100])],
    "float4[]": [("{1.5,NULL}", [1.5, None]), *lost("{{0.1},{1e20}}")],
    "varchar(3)[]": [("{abc,NULL}", ["abc", None])],
    "bit(3)": same("101"),
    "varbit": same("", "1", "10101010", "101010101"),
    "inet": same(
        *(
            "10.1.2.3",
            "10.1.2.3/8",
            "0.0.0.0/0",
            "255.255.255.255",
            "::1",
            "::",
            "::/0",
            "fe80::1:0:0:2/64",
            "::2",
            "::1:2",
        ),
        *("2001:db8::", "1:0:0:2::3", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "::1.2.3.4", "0:0:1::", "1::2:0:0:3:4"),
        *("1:2:3:4:5:6:7:0", "0:2:3:4:5:6:7:8", "::2:3:4:5:6:7:8", "::1:0", "::ffff:0:1"),
    ),
    "cidr": same("10.0.0.0/8", "10.1.2.3/32", "::/0", "2001:db8::/32", "::1/128"),
    "macaddr": same("08:00:2b:01:02:03"),
    "macaddr8": same("08:00:2b:01:02:03:04:05"),
    "pg_lsn": same("0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"),
    "tsvector": same("", "'a':1 'cat':2,5A 'é':3B,4C", "'it''s' '\\\\' 'x y':16383"),
    "int4range": [("empty", EMPTY), ("[1,10)", span(1, 10)), ("(,)", span(None, None, "()")), ("[5,)", span(5, None))],
    "int8range": [("(,-5]", span(None, -4, "()"))],
    "numrange": [("[1.50,2]", span("1.50", "2", "[]")), ("(1,NaN)", span("1", "NaN", "()"))],
    "daterange": [
        ("[2024-01-01,2024-02-01)", span(date(2024, 1, 1), date(2024, 2, 1))),
        *lost("[2024-01-01,infinity]"),
    ],
    "tsrange": [
        (
            "(2024-01-01 00:00:00,2024-01-01 00:00:01.5]",
            span(datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 1, 500000), "(]"),
        ),
        *lost("[-infinity,infinity]", "[0044-03-15 00:00:00 BC,)"),
    ],
    "tstzrange": [("[2024-01-01 00:00:00+00,)", span(utc(2024, 1, 1), None))],
    "int4multirange": [("{}", []), ("{[1,3),[5,7)}", [span(1, 3), span(5, 7)]), ("{(,)}", [span(None, None, "()")])],
    "tsmultirange": [
        ("{[2024-01-01 00:00:00,2024-01-02 00:00:00]}", [span(datetime(2024, 1, 1), datetime(2024, 1, 2), "[]")])
    ],
    "int4range[]": [('{"[1,3)",empty,NULL}', [span(1, 3), EMPTY, None]), *lost('{{"[1,3)"},{empty}}')],
}

EXTENDED: dict[str, list[Case]] = {
    "mood": same("sad", "so so", "Ü"),
    "mood[]": [('{sad,"so so"}', ["sad", "so so"])],
    "price": [("1.25", Decimal("1.25")), *lost("NaN")],
    "dearer": [("1.25", Decimal("1.25"))],
    "price[]": [("{1.25,NULL}", [Decimal("1.25"), None])],
    "address": [
        ('("a ""b"", \\\\c",7,)', {"street": 'a "b", \\c', "no": 7, "since": None}),
        ('("",,2024-01-02)', {"street": "", "no": None, "since": date(2024, 1, 2)}),
        ("(,,)", {"street": None, "no": None, "since": None}),
        ("(é,1,)", {"street": "é", "no": 1, "since": None}),
        *lost("(a,1,infinity)", '("(x)",1,0044-03-15 BC)'),
    ],
    "address[]": [
        ('{"(a,1,)",NULL}', [{"street": "a", "no": 1, "since": None}, None]),
        *lost('{"(\\"x y\\",1,infinity)"}'),
    ],
    "nested": [('("(""x y"",1,)","{1,2}")', {"a": {"street": "x y", "no": 1, "since": None}, "ns": [1, 2]})],
    "textrange": [
        ('["a b","c""d"]', span("a b", 'c"d', "[]")),
        ('["","\\\\"]', span("", "\\", "[]")),
        ('("[",é)', span("[", "é", "()")),
    ],
    "textmultirange": [('{["a]","b)"],["x""]","y,"]}', [span("a]", "b)", "[]"), span('x"]', "y,", "[]")])],
    "citext": same("", "AbC"),
    "hstore": [
        ("", {}),
        ('"a"=>"1", "b"=>NULL', {"a": "1", "b": None}),
        ('"a b"=>"", "c"=>"NULL", "q\\"\\\\"=>"x,y=>z"', {"a b": "", "c": "NULL", 'q"\\': "x,y=>z"}),
    ],
    "ltree": same("", "a.b.c"),
    "lquery": same("a.*"),
    "ltxtquery": same("a & b"),
}

SINCE_14: dict[str, list[Case]] = {
    "numeric": same("Infinity", "-Infinity"),
}
SINCE_15: dict[str, list[Case]] = {
    "interval": [
        ("2562047788:00:54.775807", record(0, 0, 2**63 - 1)),
        ("-178956970 years -8 mons -2147483648 days -2562047788:00:54.775807", record(-(2**31), -(2**31), 1 - 2**63)),
    ],
    "numeric(5,-2)": [
        ("12345", Decimal(12300)),
        ("-99900", Decimal(-99900)),
        ("0", Decimal(0)),
        ("9999900", Decimal(9999900)),
    ],
    "numeric(3,5)": [("0.00999", Decimal("0.00999")), ("-0.00001", Decimal("-0.00001")), ("0", Decimal(0))],
}
SINCE_16: dict[str, list[Case]] = {'"char"': [("\\377", "\\377"), ("\\200", "\\200")]}
SINCE_17: dict[str, list[Case]] = {"interval": lost("infinity", "-infinity"), "interval[]": lost("{infinity}")}

TEXT_ONLY = {
    "money": same("$1,234.50"),
    "point": same("(1,2)"),
    "box": same("(3,4),(1,2)"),
    "box[]": [("{(3,4),(1,2);(1,1),(0,0)}", ["(3,4),(1,2)", "(1,1),(0,0)"])],
    "regclass": same("pg_class"),
    "regclass[]": [("{pg_class}", ["pg_class"])],
    "int2vector": same("1 2 3"),
    "oidvector": same("", "1 2"),
    "tsquery": same("'a' & 'b'"),
    "jsonpath": same('$."a"[*]'),
    "aclitem": same("postgres=r/postgres"),
    "with_point": [('(1,"(1,2)")', {"a": 1, "p": "(1,2)"})],
}

#: Expressions of `i` (1 to 3000) whose random values must agree in both modes and with `render`.
BULK = {
    "float8": "(random() - 0.5) * power(10::float8, i % 600 - 300)",
    "float8 (powers of two)": "power(2::float8, i - 1075 + 1) WHERE i < 2000",
    "float8 (shorter text halfway)": "18014398509481984::float8 + i * 8",
    "float8 (integers)": "(random() * power(10::float8, i % 22))::numeric::bigint::float8 WHERE i % 22 < 19",
    "float4": "((random() - 0.5) * power(10::float8, i % 70 - 35))::float4",
    "float4 (powers of two)": "power(2::float8, i - 150)::float4 WHERE i < 278",
    "numeric": "(random() - 0.5)::numeric * power(10::numeric, i % 60 - 30)",
    "numeric(30,7)": "((random() - 0.5)::numeric * power(10::numeric, i % 22))::numeric(30,7)",
    "numeric(16,5)": "((random() - 0.5)::numeric * power(10::numeric, i % 11))::numeric(16,5)",
    "date": "date '4713-01-01 BC' + (random() * 8000000)::int",
    "date (near)": "date '1990-01-01' + i * 7",
    "timestamp": "timestamp '4713-01-01 BC' + random() * 12000 * interval '365 days' + i * interval '1 microsecond'",
    "timestamptz": "timestamptz '1990-01-01' + random() * interval '20000 days'",
    "time": "time '00:00' + random() * interval '1 day'",
    "interval": "(random() - 0.5) * interval '30 years 1 mon' + (random() - 0.5) * interval '90 hours'",
    "int8": "((random() - 0.5) * power(10::float8, i % 19))::int8",
    "uuid": "md5(random()::text)::uuid",
    "inet": "('::'::inet + (random() * 1e15)::bigint * (i % 5 > 0)::int)",
}

_TYPE = """
    SELECT n.nspname, t.typname, t.typtype, t.typbasetype, t.typtypmod, t.typdelim, t.typelem,
           t.typsubscript = 'array_subscript_handler'::regproc, t.typrelid,
           (SELECT rngsubtype FROM pg_range WHERE rngtypid = t.oid),
           (SELECT rngtypid FROM pg_range WHERE rngmultitypid = t.oid)
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = %s"""
_FIELDS = """
    SELECT attname, atttypid, atttypmod FROM pg_attribute
    WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""


def describe(connection: psycopg.Connection[Any], oid: int) -> PgType:
    row = connection.execute(_TYPE, [oid]).fetchone()
    assert row is not None
    schema, name, kind, base, base_typmod, delimiter, element, is_array, relation, subtype, range_type = row
    part = element if is_array else subtype or range_type
    fields = connection.execute(_FIELDS, [relation]).fetchall() if kind == "c" else []
    return PgType(
        oid=oid,
        schema=schema,
        name=name,
        kind=kind,
        base=describe(connection, base) if base else None,
        base_typmod=base_typmod,
        element=describe(connection, part) if part else None,
        is_array=is_array,
        fields=tuple((field, describe(connection, type_oid), typmod) for field, type_oid, typmod in fields),
        delimiter=delimiter,
    )


def transcode(codec: Codec, mode: str, value: bytes) -> bytes | None:
    """The Avro bytes, of a value that lies somewhere inside a frame; None if it is unrepresentable."""
    out = BytesWriter()
    frame = b"before" + value + b"after"
    if not (codec.binary if mode == "binary" else codec.text)(frame, 6, len(value), out):
        return None
    return out.getvalue()


def read_back(codec: Codec, avro: bytes) -> Any:
    stream = io.BytesIO(avro)
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(codec.schema))
    assert not stream.read(), "bytes left over"
    return value


class Oracle:
    """A session with the pinned settings."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True, options=SESSION, client_encoding="UTF8")
        self.version = self.connection.info.server_version // 10000

    def pgtype(self, type_name: str) -> PgType:
        row = self.connection.execute("SELECT %s::regtype::oid", [type_name]).fetchone()
        assert row is not None
        return describe(self.connection, row[0])

    def values(self, query: str, pgtype: PgType | None = None) -> tuple[PgType, int, list[bytes], list[bytes]]:
        """The type, the typmod, and the values of a one-column query, in binary (none where there is no form) and text.

        A result names a domain's base type: name a domain by `pgtype`.
        """
        text = self._run(query, 0)
        pgtype = pgtype or describe(self.connection, text.ftype(0))
        binary = self._run(query, 1) if has_known_binary(pgtype) else None
        rows = range(text.ntuples)
        return (
            pgtype,
            text.fmod(0),
            [binary.get_value(row, 0) or b"" for row in rows] if binary else [],
            [text.get_value(row, 0) or b"" for row in rows],
        )

    def _run(self, query: str, result_format: int) -> Any:
        result = self.connection.pgconn.exec_params(query.encode(), [], result_format=result_format)
        assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.error_message.decode()
        return result


@pytest.fixture
def oracle(database: Any) -> Any:
    session = Oracle(database.dsn)
    yield session
    session.connection.close()


def equal(got: Any, want: Any) -> bool:
    """Equal, and of one type; NaN is NaN, and -0.0 is not 0.0."""
    if isinstance(want, float):
        return repr(got) == repr(want)
    return got == want and type(got) is type(want)


def check(oracle: Oracle, type_name: str, cases: Sequence[Case], binary: bool = True) -> list[str]:
    """What is wrong with the codec of the type, case by case."""
    problems = []
    pgtype = oracle.pgtype(type_name)
    if has_known_binary(pgtype) != binary:
        problems.append(f"{type_name}: has_known_binary is {not binary}")
    for literal, expected in cases:
        quoted = "'" + literal.replace("'", "''") + "'"
        _, typmod, binaries, texts = oracle.values(f"SELECT {quoted}::{type_name}", pgtype)
        codec = codec_for(pgtype, -1 if pgtype.kind == "d" else typmod, TypeOptions())
        text = texts[0]
        avro = transcode(codec, "text", text)
        got = UNREPRESENTABLE if avro is None else read_back(codec, avro)
        want = text.decode() if expected is ITSELF else expected
        if not equal(got, want):
            problems.append(f"{type_name} {literal}: read back {got!r} and not {want!r}")
        for value in binaries:
            if transcode(codec, "binary", value) != avro:
                problems.append(f"{type_name} {literal}: binary {transcode(codec, 'binary', value)!r}, text {avro!r}")
            if codec.render(b"*" + value + b"*", 1, len(value)).encode() != text:
                problems.append(f"{type_name} {literal}: rendered {codec.render(value, 0, len(value))!r} for {text!r}")
    return problems


every_version = pytest.mark.postgres_versions("oldest", "newest")


@every_version
def test_every_value_of_every_built_in_type_is_the_same_avro_in_both_modes(oracle: Oracle) -> None:
    problems = [problem for type_name, cases in CASES.items() for problem in check(oracle, type_name, cases)]
    for since, table in ((14, SINCE_14), (15, SINCE_15), (16, SINCE_16), (17, SINCE_17)):
        for type_name, cases in table.items():
            if oracle.version >= since:
                problems += check(oracle, type_name, cases)
    assert not problems, "\n".join(problems)


@every_version
def test_every_value_of_users_and_extensions_types_is_the_same_avro_in_both_modes(oracle: Oracle) -> None:
    for statement in (
        "CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION ltree",
        "CREATE TYPE mood AS ENUM ('sad', 'so so', 'Ü')",
        "CREATE DOMAIN price AS numeric(10,2); CREATE DOMAIN dearer AS price CHECK (VALUE > 1)",
        "CREATE TYPE address AS (street text, gone int, no int, since date); ALTER TYPE address DROP ATTRIBUTE gone",
        "CREATE TYPE nested AS (a address, ns int[])",
        'CREATE TYPE textrange AS RANGE (subtype = text, collation = "C")',
    ):
        oracle.connection.execute(statement.encode())
    problems = [problem for type_name, cases in EXTENDED.items() for problem in check(oracle, type_name, cases)]
    assert not problems, "\n".join(problems)


@every_version
def test_a_type_without_known_binary_form_is_its_text_and_asks_for_text_mode(oracle: Oracle) -> None:
    oracle.connection.execute("SET lc_monetary = 'C'")
    oracle.connection.execute("CREATE TYPE with_point AS (a int, p point)")
    cases = TEXT_ONLY | {"money": same("$1,234.50")}
    problems = [problem for type_name, table in cases.items() for problem in check(oracle, type_name, table, False)]
    assert not problems, "\n".join(problems)
    for type_name in cases:
        pgtype = oracle.pgtype(type_name)
        codec = codec_for(pgtype, -1, TypeOptions())
        if not pgtype.is_array and pgtype.kind == "b":
            with pytest.raises(BinaryFormatUnsupported, match=pgtype.name):
                codec.binary(b"value", 0, 5, BytesWriter())


@every_version
def test_random_values_are_the_same_avro_in_both_modes_and_render_as_postgresql_does(oracle: Oracle) -> None:
    for name, expression in BULK.items():
        value, _, where = expression.partition(" WHERE ")
        # The same query runs twice: the values must be the same both times.
        oracle.connection.execute(
            "CREATE TEMP TABLE bulk AS SELECT {} AS v FROM generate_series(1, 3000) i WHERE {}".format(
                value, where or "true"
            )
        )
        pgtype, typmod, binaries, texts = oracle.values("SELECT v FROM bulk ORDER BY ctid")
        oracle.connection.execute("DROP TABLE bulk")
        codec = codec_for(pgtype, typmod, TypeOptions())
        assert len(binaries) == len(texts) > 100
        for binary, text in zip(binaries, texts, strict=True):
            assert codec.render(binary, 0, len(binary)) == text.decode(), name
            assert transcode(codec, "binary", binary) == transcode(codec, "text", text), (name, text)


@every_version
def test_float4_texts_near_the_middle_of_two_floats_are_rounded_once(oracle: Oracle) -> None:
    # Each text lies next to the middle of two float4s, closer to it than a double can tell.
    for mantissa in (8388609, 12345679, 16777213):
        middle = Fraction(2 * mantissa + 1, 2) * Fraction(2) ** -60
        for offset in (-1, 1):
            exact = middle + offset * Fraction(1, 10**60)
            text = f"{int(exact * 10**70)}e-70"
            _, _, binaries, _ = oracle.values(f"SELECT '{text}'::float4")
            pgtype = PgType(700, "pg_catalog", "float4")
            codec = codec_for(pgtype, -1, TypeOptions())
            assert transcode(codec, "binary", binaries[0]) == transcode(codec, "text", text.encode()), text
