"""Kafka at `cdcd init`: looks at the brokers, says which ACLs are missing, and makes them.

Before: `answers` names the brokers, and how to reach them. After: `first_settings` and `commands.init`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from cdcd.config.settings import Settings
from cdcd.preflight import kafka
from cdcd.preflight.findings import Finding, Level
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.reading.slot_progress import kafka_connection
from cdcd.sink.acls import Acl, needed
from cdcd.sink.kafka.acl_requests import AclRequests
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection, Property
from cdcd.terminal.text_format import plural

CLIENT: Final = "cdcd-init"


@dataclass(frozen=True)
class Cluster:
    """What decides about replicas."""

    brokers: int
    in_sync: int
    """The brokers' default of min.insync.replicas; 1 if the user may not see it."""
    has_authorizer: bool
    """Somebody has to be allowed what they do; True if the user may not see it."""

    def __str__(self) -> str:
        return f"Kafka: {plural(self.brokers, 'broker')}"


def look(bootstrap: str, properties: Mapping[str, Property]) -> Cluster:
    """Ask the brokers. Raises as `KafkaAdmin`."""
    with closing(KafkaAdmin(KafkaConnection(bootstrap, CLIENT, properties))) as admin:
        configs = admin.broker_configs()
        in_sync = configs.least("min.insync.replicas") or 1
        return Cluster(len(admin.cluster().brokers), in_sync, configs.first("authorizer.class.name") != "")


def problems(facts: PostgresFacts, settings: Settings) -> Iterator[Finding]:
    """What stands in the way."""
    for finding in kafka.findings(settings, facts.tables, facts):
        if finding.level is not Level.OK:
            yield finding


def missing_acls(settings: Settings, principal: str) -> list[Acl]:
    """The ACLs that `principal` lacks, as far as this user may see. Raises as `KafkaAdmin`."""
    with closing(AclRequests(kafka_connection(settings), principal)) as requests:
        return requests.missing(needed_acls(settings))


def needed_acls(settings: Settings) -> list[Acl]:
    """The ACLs that the daemon needs with these settings."""
    return needed(settings.sink.prefix, settings.source.slot)


def make_acls(settings: Settings, principal: str, acls: Sequence[Acl]) -> None:
    """Make ACLs. Raises as `KafkaAdmin`."""
    with closing(AclRequests(kafka_connection(settings), principal)) as requests:
        requests.make(acls)
