"""Bytes of records to typed events: the schema that wrote a record decodes it, then Spark casts it to common types.

Before: `kafka` reads records, `writer_schemas` knows their schemas.
After: `topics` gives the events to users, `state.collapse` takes them.
Source: Spark, "Apache Avro Data Source Guide" (`from_avro`).

One fixed schema would turn the rows of other versions into nulls, or into other numbers. So the first bytes of each
record choose among the writers' schemas, and all of them decode into one struct. Where Avro's own resolution is right,
a field decodes straight into the common type. Where Avro's resolution is wrong (another scale, another type), the field
decodes as it was written, into a field of its own, and Catalyst casts it. The reader may give a field of the writer's
schema another name for this, because names are not on the wire. A record of an unknown schema is an error.

An event that is older than a column has the default with which the column was added: see `missing_values`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from cdcd.avro.envelope_fields import ENVELOPE
from cdcd.avro.single_object import HEADER_SIZE
from cdcd.spark.reading.missing_values import MissingValue, missing_values
from cdcd.spark.reading.sql_texts import sql_text
from cdcd.spark.reading.types import avro_resolves, cast, common_fields, envelope
from cdcd.spark.reading.writer_schemas import CONFLUENT_HEADER_BYTES, Writer

FIELDS: Final = tuple(field.name for field in ENVELOPE)
"""The envelope's fields that readers get. An event may have more, such as a truncate's options."""

_LOST: Final = "array<struct<image:string,column:string,text:string>>"
"""Spark's type of `unrepresentable`."""
_HEADER: Final = f"substring({{c}}, 1, if(startswith({{c}}, X'00'), {CONFLUENT_HEADER_BYTES}, {HEADER_SIZE}))"


def forget_readers(spark: SparkSession) -> None:
    """Let Avro keep no readers in this JVM, which would fill in some weeks.

    Avro's fast readers stay as long as the JVM, one for each schema object that was ever parsed, and Spark parses its
    own in each task. Decoding takes no longer without them. Source: Avro, `FastReaderBuilder`, whose cache has weak
    keys, and values that hold them.
    """
    java: Any = spark._jvm  # noqa: SLF001
    java.org.apache.avro.generic.GenericData.get().setFastReaderEnabled(False)


def common_columns(writers: Sequence[Writer]) -> list[dict[str, Any]]:
    """The columns of all these versions of a table, each of the type that holds the values of all versions.

    Spark resolves names without regard to case. So names that differ in case alone are one column: it has the last one.
    """
    last = _spelled([column for writer in writers for column in writer.columns])
    versions = ([each | {"name": last[each["name"].lower()]} for each in writer.columns] for writer in writers)
    return reduce(common_fields, versions)


def header(column: str = "value") -> Column:
    """The first bytes of a record, which name its schema: ten, or five in Confluent's wire format."""
    return f.expr(_HEADER.format(c=column))


def entries_before(entries: str) -> str:
    """How many `entries`, those of `unrepresentable`, are of the image `before`, in SQL: they are the first ones."""
    return f"size(array_remove({entries}.image, 'after'))"


def of_table(records: DataFrame, others: Sequence[bytes]) -> DataFrame:
    """Leave out the events of other tables, which share the topic; `others`: the first bytes of these.

    A record of an unknown schema stays, and is an error for `decode`.
    """
    return records.where(f.col("value").isNull() | ~header().isin(list(others))) if others else records


def decode(
    records: DataFrame,
    writers: Sequence[Writer],
    columns: Sequence[dict[str, Any]],
    topic: str,
    *,
    takes_unknown: bool = False,
    is_held: bool = False,
) -> DataFrame:
    """Replace the column `value` of records by the envelope's fields, `before` and `after` with these columns.

    `columns` has columns of `common_columns` of the writers, and perhaps more. The others are passed over in the
    bytes, which takes less time. Records without a value (tombstones) are left out. With `takes_unknown`, the fields of
    a record of another schema are null.

    Spark decodes each event once. (It computes an expression again for each condition on it, but does not look through
    `explode`.) Only if the driver holds the records (`is_held`), it decodes again: so it need not run a job.
    """
    versions = _versions(writers, columns)
    younger = _younger_columns(writers, versions)
    other = _other_spellings(writers, versions)
    # As text: each function of PySpark's is a call of Java's, and there would be hundreds.
    wrote = {f"startswith(value, X'{each.header.hex()}')": each for each in writers}
    decoded = {condition: _from_avro(each, versions) for condition, each in wrote.items()}
    number = _case({condition: str(index) for index, condition in enumerate(wrote)}, "NULL")
    kept = [f"`{name}`" for name in records.columns if name != "value"]
    writer = [f"{number} AS _writer"] if younger else []
    event = _case(decoded, "NULL" if takes_unknown else _unknown(topic))
    once = event if is_held else f"explode(array({event}))"
    records = records.where("value IS NOT NULL").selectExpr(*kept, f"{once} AS _event", *writer)
    if not younger and not other and all(len(known) == 1 for known in versions.values()):
        return records.selectExpr(*(f"_event.{name}" for name in FIELDS), *kept)
    return records.select(*(_field(name, versions, younger, other).alias(name) for name in FIELDS), *kept)


def _case(values: Mapping[str, str], otherwise: str) -> str:
    """In SQL: the value of the first condition that holds."""
    cases = "".join(f" WHEN {condition} THEN {value}" for condition, value in values.items())
    return f"CASE{cases} ELSE {otherwise} END" if cases else otherwise


def _unknown(topic: str) -> str:
    text = f"cdcd: a record of {topic} names a schema that was not known when the query was made: "
    return (
        f"raise_error(concat({sql_text(text)}, lower(hex({_HEADER.format(c='value')})), "
        "'. Start the query again: schemas are read at its start'))"
    )


def _other_spellings(writers: Sequence[Writer], versions: Iterable[str]) -> dict[str, str]:
    """The names of writers' columns that differ in case from the names that the columns have now: the latter."""
    spelled = {name.lower(): name for name in versions}
    named = {name: spelled.get(name.lower(), name) for each in writers for name in each.names}
    return {name: now for name, now in named.items() if name != now}


def _versions(writers: Sequence[Writer], columns: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The fields that each column decodes into: one of the common type, and one for each type that needs a cast.

    No column can have the name of such another field: `_x0_` would be the escape of a zero byte, see `avro_names`.
    """
    versions, spelled = {column["name"]: [column] for column in columns}, _spelled(columns)
    for column in (each for writer in writers for each in writer.columns if each["name"].lower() in spelled):
        known = versions[spelled[column["name"].lower()]]
        if not avro_resolves(column["type"], known[0]["type"]) and all(column["type"] != e["type"] for e in known):
            known.append({"name": f"_x0_{len(known)}_{column['name']}", "type": column["type"]})
    return versions


def _spelled(columns: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The names of columns, by the names in small letters."""
    return {column["name"].lower(): column["name"] for column in columns}


def _from_avro(writer: Writer, versions: Mapping[str, list[dict[str, Any]]]) -> str:
    """In SQL: the event that this writer wrote."""
    reader = envelope([each for known in versions.values() for each in known], writer.schema, FIELDS)
    names, spelled = {}, {name.lower(): name for name in versions}
    for column in writer.columns:
        name = spelled.get(column["name"].lower(), column["name"])
        of_its_type = (each["name"] for each in versions.get(name, ()) if each["type"] == column["type"])
        names[column["name"]] = next(of_its_type, name)
    schemas = f"{sql_text(writer.renamed(names))}, map('mode', 'FAILFAST', 'avroSchema', {sql_text(reader)})"
    return f"from_avro(substring(value, {len(writer.header) + 1}), {schemas})"


@dataclass(frozen=True)
class WriterOrder:
    """The schemas of some events, one after the other."""

    writers: Sequence[Writer]
    """In the order of their first events; at the end the last event's, perhaps once more."""
    returned: Mapping[str, tuple[int, int]]
    """Columns that went and came again, by name: commit LSN and seq of the last event without it.

    What earlier events have is another column's: PostgreSQL's rows have lost it.
    """

    @property
    def names(self) -> list[str]:
        """The columns of the last event."""
        return self.writers[-1].names if self.writers else []


def in_order(
    records: DataFrame,
    writers: Sequence[Writer],
    topic: str,
    until_lsn: int | None = None,
    after: tuple[int, int] | None = None,
) -> WriterOrder:
    """The writers of these records, of the events with a commit LSN below `until_lsn`, and after a commit LSN and seq.

    Spark looks through the events if the writers have other columns than each other.
    """
    if len({frozenset(each.names) for each in writers}) < 2:
        return WriterOrder(list(writers), {})
    events = decode(records.withColumn("_header", header()), writers, common_columns(writers), topic)
    if until_lsn is not None:
        events = events.where(f.col("source.commit_lsn") < until_lsn)
    order = f.struct("source.commit_lsn", "source.seq")
    if after is not None:
        lsn, seq = f.col("source.commit_lsn"), f.col("source.seq")
        events = events.where((lsn > after[0]) | ((lsn == after[0]) & (seq > after[1])))
    rows = events.groupBy("_header").agg(f.min(order).alias("first"), f.max(order).alias("last")).collect()
    spans = {bytes(row["_header"]): (tuple(row["first"]), tuple(row["last"])) for row in rows}
    return writer_order([(each, *spans[each.header]) for each in writers if each.header in spans])


def writer_order(spans: Sequence[tuple[Writer, tuple[int, int], tuple[int, int]]]) -> WriterOrder:
    """The order of writers, each with the commit LSN and seq of its first and of its last event."""
    ordered = [each for each, _, _ in sorted(spans, key=lambda span: span[1])]
    newest = max(spans, key=lambda span: span[2], default=None)
    if newest is None:
        return WriterOrder([], {})
    if newest[0] is not ordered[-1]:
        ordered.append(newest[0])
    returned = {}
    for name in newest[0].names:
        lacks = [last for each, _, last in spans if name.lower() not in map(str.lower, each.names)]
        has = [first for each, first, _ in spans if name.lower() in map(str.lower, each.names)]
        if lacks and min(has) < max(lacks):
            returned[name] = max(lacks)
    return WriterOrder(ordered, returned)


@dataclass(frozen=True)
class _YoungerColumn:
    """A column that some writers lack, and that was added with a default."""

    missing: MissingValue
    lacking: tuple[int, ...]
    """The numbers of those writers."""

    def is_in(self, image: str) -> Column:
        """Whether an event of such a writer has all other columns of an image."""
        has_all = f.col("_event").getField(image).isNotNull()
        if image == "before":
            has_all &= f.col("_event").getField("identity") == "full"
        return f.col("_writer").isin(*self.lacking) & has_all

    def lost(self, name: str, image: str) -> Column:
        """What `unrepresentable` has of the column: its text, if Avro cannot hold the value."""
        entry = f.struct(
            f.lit(image).alias("image"), f.lit(name).alias("column"), f.lit(self.missing.text).alias("text")
        )
        return f.when(self.is_in(image), f.array(entry)).otherwise(f.expr(f"cast(array() as {_LOST})"))


def _younger_columns(
    writers: Sequence[Writer], versions: Mapping[str, list[dict[str, Any]]]
) -> dict[str, _YoungerColumn]:
    younger = {}
    for name, missing in missing_values(writers).items():
        lacking = tuple(number for number, each in enumerate(writers) if missing.is_lacked_by(each))
        if lacking and name in versions:
            younger[name] = _YoungerColumn(missing, lacking)
    return younger


def _field(
    name: str,
    versions: Mapping[str, list[dict[str, Any]]],
    younger: Mapping[str, _YoungerColumn],
    other: Mapping[str, str],
) -> Column:
    decoded = f.col(f"_event.{name}")
    if other and name in ("unchanged", "unrepresentable"):
        present = f.create_map(*(f.lit(each) for pair in other.items() for each in pair))

        def named(column: Column) -> Column:
            return f.coalesce(present[column], column)

        decoded = (
            f.transform(decoded, named)
            if name == "unchanged"
            else f.transform(decoded, lambda each: each.withField("column", named(each.getField("column"))))
        )
    if name == "unrepresentable":
        lost = {column: each for column, each in younger.items() if each.missing.avro is None}
        if not lost:
            return decoded
        before, after = ([each.lost(column, image) for column, each in lost.items()] for image in ("before", "after"))
        own = f.expr(entries_before("_event.unrepresentable"))
        return f.concat(f.slice(decoded, 1, own), *before, f.slice(decoded, own + 1, f.size(decoded)), *after)
    if name not in ("before", "after") or (not younger and all(len(known) == 1 for known in versions.values())):
        return decoded
    made = []
    for column, known in versions.items():
        values = [cast(decoded.getField(each["name"]), each["type"], known[0]["type"]) for each in known]
        value = f.coalesce(*values)
        if column in younger:
            each = younger[column]
            value = f.when(each.is_in(name), each.missing.value(known[0]["type"])).otherwise(value)
        made.append(value.alias(column))
    return f.when(decoded.isNotNull(), f.struct(*made))
