"""Remembers within one process what an error says about the next stream: what it does without, what it looks at.

Before: `supervisor` hands over the error that ended a stream.
After: `stream_startup` and `kafka_takeover` start the next stream by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdcd.daemon.start_judgement import StartJudgement
from cdcd.errors import CdcdError, FatalError, SpoolFull, StreamingResumed, StreamingUnsupported, TopicLost
from cdcd.sink.parking.state import PendingParking
from cdcd.source.server_errors import SlotActive


@dataclass
class Fallbacks:
    """The lessons of the streams of this process. The next stream starts by them."""

    binary: bool | None = None
    """None: the published types decide."""
    streaming_allowed: bool = True
    """The stream may ask for transactions in progress."""
    streaming_resumes_lsn: int = 0
    """If not: they may come again once Kafka has everything before this LSN; 0: not in this process."""
    parking: PendingParking = field(default_factory=PendingParking)
    """Tables to park, in addition to those that the progress names."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """The topics that lost records under the last stream, each with what shows it, until the next stream begins."""
    walsender_pid: int = 0
    """The server process of the last stream of this process; 0: none that may still have the slot."""
    judgement: StartJudgement = field(default_factory=StartJudgement)
    """It knows the warnings that earlier starts have logged."""

    def note(self, error: CdcdError) -> None:
        """Note what the error that ended a stream means for the next one.

        Raises FatalError if prepared transactions alone do not fit into the spool: the server sends them again.
        """
        if isinstance(error, SpoolFull) and not self.streaming_allowed and not error.may_pass:
            raise FatalError(
                f"the prepared transactions do not fit: {error.message}", error.remedy, code="spool-full"
            ) from error
        if isinstance(error, StreamingUnsupported):
            self.streaming_allowed = False
            self.streaming_resumes_lsn = error.until_lsn
        elif isinstance(error, StreamingResumed):
            self.streaming_allowed = True
        elif isinstance(error, TopicLost):
            self.lost = error.lost
        elif isinstance(error, SlotActive):
            self.lost = {}  # another daemon has looked at the topics since
