"""A schema registry that is slow, and away at times.

Before: `world` gives a seed. After: the real `RegistryStore` asks a `SimRegistryIds`, which stands for the threads of
one process; the checker knows what the registry has.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from random import Random
from typing import TYPE_CHECKING, Any

from cdcd.avro.registry_answers import Meaning, RegistryError
from cdcd.avro.registry_ids import Schema, _schema
from cdcd.avro.single_object import fingerprint
from cdcd.errors import KafkaUnavailable, RequestRejected

if TYPE_CHECKING:
    from sim.replica import Life
    from sim.world import World


class SimRegistry:
    """The registry. It gives a schema the same id in all worlds."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self.rng = rng
        self.is_up = True
        self.is_calm = False
        """It is never away again."""
        self.answers_within_s = rng.choice([0.0, 0.05, 0.5])
        self.away_s = rng.choice([0.2, 5.0])
        """How long it is away, at most."""
        self._go_away_later()

    def heal(self) -> None:
        self.is_up = self.is_calm = True

    def id_of(self, text: str) -> int:
        return int.from_bytes(fingerprint(text)[:4]) >> 1

    def _go_away_later(self) -> None:
        self._world.at(self._world.now + self.rng.random() * 5, self._go_away)

    def _go_away(self) -> None:
        if not self.is_calm:
            self._world.note("the registry is away")
            self.is_up = False
            self._world.at(self._world.now + self.rng.random() * self.away_s, self._come_back)

    def _come_back(self) -> None:
        self.is_up = True
        if not self.is_calm:
            self._go_away_later()


class Asked(Future[Any]):
    """The id of a schema. Whoever takes the result does not wait for the registry any more, unless it failed."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    def result(self, timeout: float | None = None) -> Any:
        self._life.asking = self.exception() is not None
        return super().result(timeout)


class SimRegistryIds:
    """Plays `registry_ids.RegistryIds`, and its requests."""

    url = "http://registry"
    generation = 0

    def __init__(self, world: World, life: Life, registry: SimRegistry) -> None:
        self._world = world
        self._life = life
        self._registry = registry
        self._asked: dict[tuple[str, str], Asked] = {}
        self._recorded: dict[Schema, int] = {}
        self.requests = self

    def silent_s(self) -> float:
        return 0.0

    def unavailable(self, error: RegistryError) -> KafkaUnavailable:
        return KafkaUnavailable(error.words, code="kafka-unavailable")

    def rejected(self, error: RegistryError) -> RequestRejected:
        return RequestRejected(error.words, code="registry-unavailable")

    def take_over(self, recorded: Mapping[Schema, int], generation: int) -> None:
        self._recorded = dict(recorded)

    def unrecorded(self) -> dict[Schema, int]:
        known = {_schema(*asked): Future.result(each) for asked, each in self._asked.items() if each.done()}
        news = {schema: each for schema, each in known.items() if schema not in self._recorded}
        self._recorded |= news
        return news

    def known(self, subject: str, text: str) -> int | None:
        if (recorded := self._recorded.get(_schema(subject, text))) is not None:
            return recorded
        asked = self._asked.get((subject, text))
        return asked.result() if asked is not None and asked.done() else None

    def schema_id(self, subject: str, text: str) -> Asked:
        asked = self._asked.get((subject, text))
        if asked is None:
            asked = self._asked[subject, text] = Asked(self._life)
            within_s = self._registry.rng.random() * self._registry.answers_within_s
            self._world.at(self._world.now + within_s, lambda: self._answer(subject, text))
        self._life.asking = not asked.done()
        return asked

    def _answer(self, subject: str, text: str) -> None:
        asked = self._asked[subject, text]
        if self._registry.is_up:
            schema_id = self._registry.id_of(text)
            self._world.checker.registered(schema_id, text)
            asked.set_result(schema_id)
        else:
            del self._asked[subject, text]
            asked.set_exception(RegistryError(Meaning.PASSING, "the registry is away"))
