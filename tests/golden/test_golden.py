"""Streams that real servers sent, versions 14 to 18, give the events that they gave when they were recorded."""

from __future__ import annotations

import pytest
from golden import recording
from golden.recording import HERE, Recording, Stream

from cdcd.pgoutput import messages as m
from cdcd.pgoutput.decoder import Decoder
from cdcd.pgoutput.encoder import encode
from cdcd.source.stream_messages import XLOGDATA_HEADER_BYTES, XLogData, decode_server

RECORDINGS = {path.name.partition(".")[0]: recording.load(path) for path in sorted(HERE.glob("pg*.jsonl.gz"))}
STREAMS = [
    pytest.param(made, stream, id=f"{version}-{stream.mode}")
    for version, made in RECORDINGS.items()
    for stream in made.streams
]

EVERY_KIND = {
    14: "BCORYIUDTMSEcA",
    15: "BCORYIUDTMSEcAbPKrp",
    16: "BCORYIUDTMSEcAbPKrp",
    17: "BCORYIUDTMSEcAbPKrp",
    18: "BCORYIUDTMSEcAbPKrp",
}


def test_every_version_is_recorded_with_every_message_that_it_has() -> None:
    found = {
        int(made.server.partition(".")[0]): {chr(f[XLOGDATA_HEADER_BYTES]) for s in made.streams for f in s.frames}
        for made in RECORDINGS.values()
    }
    assert found == {version: set(kinds) for version, kinds in EVERY_KIND.items()}


@pytest.mark.parametrize(("made", "stream"), STREAMS)
def test_every_frame_is_decoded_and_encoded_again_to_the_same_bytes(made: Recording, stream: Stream) -> None:
    decoder = Decoder(streaming_parallel=stream.parallel)
    in_stream = False
    for number, frame in enumerate(stream.frames):
        outer = decode_server(frame)
        assert isinstance(outer, XLogData)
        assert outer.encode() == frame
        message = decoder.decode(frame, XLOGDATA_HEADER_BYTES, in_stream)
        assert encode(message) == outer.data, f"frame {number}, {m.NAMES[outer.data[0]]}"
        if isinstance(message, (m.StreamStart, m.StreamStop)):
            in_stream = isinstance(message, m.StreamStart)
    assert not in_stream


@pytest.mark.parametrize(("made", "stream"), STREAMS)
def test_the_events_are_the_recorded_ones_however_they_were_sent(made: Recording, stream: Stream) -> None:
    # Frames come one at a time, some at a time, or all at once.
    burst = {"streamed": 1, "parallel": 100_000}.get(stream.mode, 100)
    found = recording.replay(stream, made.answers, burst).events
    for number, (event, wanted) in enumerate(zip(found, made.events, strict=False)):
        assert event == wanted, f"event {number}"
    assert len(found) == len(made.events)
