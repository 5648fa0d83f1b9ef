"""Which schemas wrote a batch of records, and what the key of its table is.

Before: `kafka` reads the records' bytes, `writer_schemas` knows the schemas. After: `table_merge` decodes the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.errors import RequestRejected
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.reading.decoding import WriterOrder, common_columns, decode, in_order
from cdcd.spark.reading.topics import last_key_headers
from cdcd.spark.reading.writer_schemas import Writer, Writers


def batch_schemas(
    writers: Writers,
    values: Sequence[bytes],
    keys: Sequence[bytes],
    plan: MirroredTable,
    before: MirroredTable | None,
    last_keys: Callable[[Sequence[Writer]], Sequence[bytes] | None],
) -> tuple[list[Writer], list[str] | None]:
    """The schemas that wrote a batch, and the columns of the table's key (None: no event has come, so it is unknown).

    `values`, `keys`: the headers of the batch's values and keys. `last_keys` returns those of the keys after the last
    truncate event, which ends all keys before it; None: the batch has no such event. Raises RequestRejected if the key
    has changed without one.
    """
    where = (plan.schema, plan.name, plan.topic)
    found = writers.find(values, *where, "value")
    kinds = {each.key for each in writers.find(keys, *where, "key")}
    if before is not None and before.key is not None:
        kinds.add(tuple(before.key))
    if len(kinds) > 1 and (last := last_keys(found)) is not None:
        kinds = {each.key for each in writers.find(last, *where, "key")} or kinds
    if len(kinds) > 1:
        shown = " and ".join(sorted(f"({', '.join(kind)})" for kind in kinds))
        raise RequestRejected(
            f"the key of {plan.table} has changed, from or to {shown}: rows from before and after it cannot be matched",
            f"Drop {plan.target}, and load the table again with `cdcd spark snapshot`",
            code="mirror-load-again",
        )
    if kinds:
        return found, list(kinds.pop())
    known = writers.of(*where, "key")  # for a batch of truncates, which have no keys
    return found, list(known[-1].key) if known else [] if values else None


def last_headers(raw: DataFrame, writers: Sequence[Writer], topic: str) -> list[bytes] | None:
    """The headers of the keys after the last truncate event; None if there is none."""
    events = decode(raw, writers, common_columns(writers), topic)
    return last_key_headers(events) if events.where("op = 't'").limit(1).collect() else None


def writers_after_truncate(raw: DataFrame, writers: Sequence[Writer], topic: str) -> WriterOrder | None:
    """The schemas of the events after the last truncate event; None if there is none."""
    events = decode(raw, writers, common_columns(writers), topic).where("op = 't'")
    [row] = events.agg(f.max(f.struct("source.commit_lsn", "source.seq")).alias("last")).collect()
    return None if row["last"] is None else in_order(raw, writers, topic, after=tuple(row["last"]))
