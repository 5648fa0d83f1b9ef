"""Streams that real servers sent, damaged: what the rooms make of them.

Before: the golden recordings. After: `test_damaged_streams`; or any number of seeds by hand:

    python tests/property/damaged.py --seeds 20000 [--start N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS)]

from golden import recording  # noqa: E402
from golden.recording import HERE, Answers, Recording, Stream  # noqa: E402

from cdcd.avro.codecs.lookup import TypeOptions  # noqa: E402
from cdcd.avro.event_encoder import EventEncoder  # noqa: E402
from cdcd.avro.schema_store import FingerprintStore  # noqa: E402
from cdcd.errors import CdcdError, DecodeError  # noqa: E402
from cdcd.pgoutput.decoder import Decoder  # noqa: E402
from cdcd.sink.batches import BatchBuilder  # noqa: E402
from cdcd.source.stream_messages import XLOGDATA_HEADER_BYTES  # noqa: E402
from cdcd.transaction.assembler import Assembler  # noqa: E402
from cdcd.transaction.relations import Relations  # noqa: E402
from cdcd.transaction.spool import Spool  # noqa: E402
from cdcd.transaction.spool_file import SpoolDirectory  # noqa: E402

RECORDINGS = [recording.load(path) for path in sorted(HERE.glob("pg*.jsonl.gz"))]
STREAMS = [(made, stream) for made in RECORDINGS for stream in made.streams]

EXTREMES = [size.to_bytes(4, "big", signed=True) for size in (-(2**31), -2, -1, 0, 1, 2**16, 2**24, 2**30, 2**31 - 1)]
FRAMES = 250
"""What of a stream is played: its first part, up to a random frame, and on from there."""


def flip(frame: bytearray, rng: Random) -> None:
    """Turn one to three bits."""
    for _ in range(rng.randint(1, 3)):
        frame[_somewhere(frame, rng)] ^= 1 << rng.randrange(8)


def cut(frame: bytearray, rng: Random) -> None:
    """Lose the end."""
    del frame[rng.randrange(1, len(frame) + 1) :]


def grow(frame: bytearray, rng: Random) -> None:
    """Something behind the end."""
    frame += rng.randbytes(rng.choice([1, 4, 100]))


def lie(frame: bytearray, rng: Random) -> None:
    """A count or a size that is not true, or nothing else that makes sense."""
    at = _somewhere(frame, rng)
    frame[at : at + 4] = rng.choice(EXTREMES)


def rename(frame: bytearray, rng: Random) -> None:
    """Another kind of message."""
    frame[min(XLOGDATA_HEADER_BYTES, len(frame) - 1)] = rng.choice(b"BCORYIUDTMSEcAbPKrp?")


def _somewhere(frame: bytearray, rng: Random) -> int:
    """A place in the message; of a frame that was cut before, in what is left."""
    return rng.randrange(min(XLOGDATA_HEADER_BYTES, len(frame) - 1), len(frame))


IN_A_FRAME: list[Callable[[bytearray, Random], None]] = [flip, flip, cut, grow, lie, lie, rename]


def damage(frames: list[bytes], rng: Random) -> str:
    """Damage some of the frames, or their order; says what was done."""
    at = rng.randrange(len(frames))
    other = rng.randrange(len(frames))
    match rng.randrange(12):
        case 0:
            del frames[at]
            return f"frame {at} is missing"
        case 1:
            frames.insert(other, frames[at])
            return f"frame {at} comes again at {other}"
        case 2:
            frames[at], frames[other] = frames[other], frames[at]
            return f"frames {at} and {other} are swapped"
        case 3:
            here, there = frames[at], frames[other]
            frames[at] = here[: rng.randrange(1, len(here))] + there[rng.randrange(len(there)) :]
            return f"frame {at} goes on as {other}"
        case _:
            how = rng.choice(IN_A_FRAME)
            frame = bytearray(frames[at])
            how(frame, rng)
            frames[at] = bytes(frame)
            return f"frame {at}: {how.__name__}"


class Catalog(Answers):
    """The recorded catalog, which as a real one knows nothing of a relation that there is not."""

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        return self.primary_keys.get(relation_oid, ())

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        return self.identity_indexes.get(relation_oid, ())


def play(made: Recording, stream: Stream, frames: list[bytes], burst: int) -> None:
    """Feed the frames; raises what the rooms raise."""
    batches = BatchBuilder(tombstones=False)
    with tempfile.TemporaryDirectory() as folder:
        assembler = Assembler(
            Decoder(streaming_parallel=stream.parallel),
            Relations(Catalog(**made.answers.__dict__)),
            EventEncoder(batches, FingerprintStore(batches), TypeOptions()),
            Spool(SpoolDirectory(Path(folder) / "spool"), 1 << 14, 1 << 24),
        )
        for at in range(0, len(frames), burst):
            assembler.feed(frames[at : at + burst])
            turns = 0
            while assembler.is_busy:
                assembler.proceed()
                turns += 1
                assert turns < 100_000, "it goes on for ever"
            batches.build()


def one(seed: int) -> CdcdError | None:
    """Damage and play one stream. Returns the error that the rooms named; any other is raised."""
    rng = Random(seed)
    made, stream = rng.choice(STREAMS)
    start = rng.randrange(max(1, len(stream.frames) - FRAMES))
    # Relations are told once: so all of the stream before the damaged part is played, too, but at most as much again.
    frames = list(stream.frames[: start + FRAMES]) if rng.random() < 0.3 else list(stream.frames[:FRAMES])
    said = [damage(frames, rng) for _ in range(rng.choice([1, 1, 2, 5]))]
    try:
        play(made, stream, frames, rng.choice([1, 7, 100, 10_000]))
    except CdcdError as error:
        return error
    except Exception as error:
        error.add_note(f"seed {seed}, PostgreSQL {made.server}, {stream.mode}: {'; '.join(said)}")
        raise
    return None


def main() -> int:
    """Run seeds, and report what is no error of ours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    began, failed, named = time.monotonic(), 0, 0
    for seed in range(given.start, given.start + given.seeds):
        try:
            error = one(seed)
        except Exception as problem:  # noqa: BLE001  # that is what is looked for
            failed += 1
            if failed <= 5:
                traceback.print_exception(problem)
        else:
            named += isinstance(error, DecodeError)
    print(f"{given.seeds} seeds in {time.monotonic() - began:.0f} s: {named} DecodeErrors, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
