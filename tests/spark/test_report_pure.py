"""What a comparison says that it has compared, without a session."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from cdcd.spark.verify import Report, TableReport


def test_a_report_says_what_was_compared_and_both_forms_of_the_lsn_that_the_lake_holds() -> None:
    table = TableReport("public.orders", 4616, (), 0, ())
    text = Report(0x2330000, (table,), 1.25, run=2, published_lsn=36896080).as_text()
    assert text.split("\n")[0] == (
        "PostgreSQL at 0/2330000, and the mirror: its run 2, published at 0/232FD50 (36896080), with the later events "
        "of the topics up to 0/2330000; in 1.2 s"
    )
    document = json.loads(Report(0x2330000, (table,), 1.25, run=2, published_lsn=36896080).as_json())
    assert (document["lsn"], document["run"], document["published_lsn"]) == ("0/2330000", 2, "0/232FD50")
    text = Report(0x2330000, (table,), 1.25).as_text()
    assert text.startswith("PostgreSQL at 0/2330000, and the rows that the topics give up to 0/2330000; in")
