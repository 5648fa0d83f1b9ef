"""`cdcd adopt`: lets the stream go on at the server that source.dsn names now, in the same topics.

Before: `cli.main` has parsed the options. After: `daemon.adoption` records the server; a person starts the daemon.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Collection
from typing import Final, TextIO

from cdcd.cli.commands import Load
from cdcd.config.format_choice import refuse_unread
from cdcd.config.settings import Settings
from cdcd.daemon.adoption import Adopted, Adoption
from cdcd.daemon.adoption_proof import Compare, Compared, Proof
from cdcd.daemon.clients import Clients
from cdcd.lsn import format_lsn
from cdcd.progress.records import SlotRecord
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.terminal.visible_text import word
from cdcd.verify.comparison import Comparison

_PROOFS: Final = {
    Proof.COMPARED: "the tables are equal to the topics",
    Proof.SAID: "the tables were not compared: run cdcd verify when the daemon has started",
    Proof.REPAIRED: "the daemon compares the tables with the topics, and publishes what differs",
    Proof.REPLACED: "the daemon takes a new snapshot of all tables",
}

_UNCOMPARED: Final = (
    "Run cdcd adopt --resnapshot, which takes new snapshots of all tables; or cdcd adopt --drained, if Kafka has "
    "everything of the old server, and nobody wrote to the new one before its slot was made"
)


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Adopt the server, in the way that the options name."""
    settings = load().settings
    chosen = {Proof.SAID: args.drained, Proof.REPLACED: args.resnapshot, Proof.REPAIRED: args.repair}
    proof = next((proof for proof, is_chosen in chosen.items() if is_chosen), Proof.COMPARED)
    if proof in (Proof.COMPARED, Proof.REPAIRED):
        refuse_unread(settings, "cdcd adopt without --drained or --resnapshot", instead=_UNCOMPARED)
    adopted = Adoption(settings, Clients(settings), _comparison(settings)).run(proof)
    out.write(f"{as_json(adopted) if args.json else as_text(adopted)}\n")
    return True


def _comparison(settings: Settings) -> Compare:
    def compare(last: SlotRecord, leave_out: Collection[tuple[str, str]]) -> Compared:
        lsn, results = Comparison(settings, ProgressBar(sys.stderr)).run_at(last.lsn + 1, leave_out)
        return Compared(lsn, tuple(result.table for result in results if not result.is_equal))

    return compare


def as_json(adopted: Adopted) -> str:
    """One object."""
    return json.dumps(
        {
            "system_id": adopted.system_id,
            "before": adopted.before,
            "lsn": format_lsn(adopted.lsn),
            "server_lsn": format_lsn(adopted.server_lsn),
            "lsn_base": format_lsn(adopted.lsn - adopted.server_lsn),
            "proof": adopted.proof.value,
            "adopted": adopted.is_new,
            "snapshots": list(adopted.snapshots),
            "unpublished": list(adopted.unpublished),
        },
        ensure_ascii=False,
    )


def as_text(adopted: Adopted) -> str:
    """A few sentences."""
    if not adopted.is_new:
        return "Kafka knows this server already, so nothing was recorded. Run: cdcd run"
    base = adopted.lsn - adopted.server_lsn
    added = f", to whose LSNs the daemon adds {format_lsn(base)}" if base else ""
    where = f"{format_lsn(adopted.server_lsn)} of the server {adopted.system_id}{added}"
    lines = [f"The stream goes on at {where}; {_PROOFS[adopted.proof]}"]
    if adopted.snapshots and adopted.proof is not Proof.REPLACED:
        lines.append(f"The daemon takes new snapshots for these topics: {', '.join(map(word, adopted.snapshots))}")
    if adopted.unpublished:
        lines.append(f"No published table here writes to these topics: {', '.join(map(word, adopted.unpublished))}")
    return "\n".join(lines)
