"""The ACLs of Kafka that the daemon and its readers need. Pure.

Before: the settings name the prefix and the slot. After: `cdcd init` writes the commands or makes the ACLs, and the
hints of `cdcd check` and of errors name the same. deploy/kafka/acls.sh has the commands: a test holds both equal.
Source: Apache Kafka, "Authorization and ACLs" (operations and resources, by protocol); KIP-98, KIP-430.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Final

from cdcd.errors import CdcdError
from cdcd.sink.topics import TopicSpec

_IN_SYNC: Final = "min.insync.replicas"
"""The script sets it for all topics alike."""

ANY_PRINCIPAL: Final = "User:..."
"""Stands for the user in a hint: the daemon does not know the name that the brokers have for it."""
BROKERS: Final = "BROKERS"
"""Stands for `sink.bootstrap_servers` in a hint."""
_ADMIN: Final = " --command-config admin.properties"
_OF_LOGIN: Final = ("security.", "sasl.", "ssl.")
_PLACES: Final = re.compile(
    rf"(?<=--bootstrap-server ){BROKERS}\b|(?<=--topic )PREFIX(?=\.)|(?<=--transactional-id )PREFIX-SLOT\b"
    rf"|(?<=--allow-principal ){re.escape(ANY_PRINCIPAL)}"
)
"""Only where a command has them: a table may be named like one of these words, and so its topic."""


def kafka_command(tool: str, options: str) -> str:
    """A command of Kafka's own tools for a hint: an administrator runs it, and `Places` names the brokers."""
    return f"{tool} {options} --bootstrap-server {BROKERS}{_ADMIN}"


@dataclass(frozen=True)
class Places:
    """What the commands in hints leave open, as the settings have it."""

    bootstrap: str
    prefix: str
    slot: str
    properties: Mapping[str, object]
    """librdkafka's: without one for TLS or a log-in, Kafka's tools need no properties of an administrator either."""
    principal: str = ""
    """Empty: the user of `properties`, if they name one."""

    def fill(self, error: CdcdError) -> CdcdError:
        """Let the commands in the error's hint name these places. Returns the error."""
        error.hint = self.filled(error.hint)
        return error

    def filled(self, hint: str) -> str:
        """The hint, with the names that belong into its commands, quoted for a shell."""
        if ".sh " not in hint:
            return hint
        user = self.properties.get("sasl.username")
        principal = self.principal or (f"User:{user}" if user else "")
        words = {
            "PREFIX": self.prefix,
            "PREFIX-SLOT": f"{self.prefix}-{self.slot}",  # neither can hold what a shell understands
            BROKERS: quote(self.bootstrap),
            ANY_PRINCIPAL: quote(principal) if principal else ANY_PRINCIPAL,
        }
        if not any(name.startswith(_OF_LOGIN) for name in self.properties):
            hint = hint.replace(_ADMIN, "")
        return _PLACES.sub(lambda place: words[place[0]], hint)


@dataclass(frozen=True)
class Acl:
    """What a user may do with one resource, or with all that begin with its name."""

    kind: str
    """topic, transactional-id or cluster: the option of kafka-acls.sh, too."""
    name: str
    """Empty for the cluster."""
    operations: Sequence[str]
    is_prefixed: bool = False
    about: str = ""
    """For a person: what it is for."""

    def options(self) -> str:
        """The options of kafka-acls.sh, except those that say who and where."""
        operations = "".join(f"--operation {operation} " for operation in self.operations)
        prefixed = "--resource-pattern-type prefixed " if self.is_prefixed else ""
        return f"{operations}{prefixed}--{self.kind} {quote(self.name) if self.name else ''}".rstrip()

    def command(self, principal: str = ANY_PRINCIPAL) -> str:
        """The command for a hint."""
        return kafka_command("kafka-acls.sh", f"--add --allow-principal {principal} {self.options()}")


def of_topics(prefix: str) -> Acl:
    """What the daemon does with its topics."""
    about = "The topics of the prefix: cdcd makes missing topics, writes them, asks for offsets, and reads the progress"
    return Acl("topic", f"{prefix}.", ("Create", "Write", "Describe", "DescribeConfigs", "Read"), True, about)


def of_transactions(prefix: str, slot: str) -> list[Acl]:
    """What the daemon does with its two transactional.ids."""
    about = "The two transactional.ids: exactly once, and fencing"
    ids = (f"{prefix}-{slot}", f"{prefix}-{slot}.2")
    return [Acl("transactional-id", name, ("Write", "Describe"), about=about) for name in ids]


OF_CLUSTER: Final = Acl(
    "cluster",
    "",
    ("DescribeConfigs",),
    about="Optional: cdcd reads transaction.max.timeout.ms of each broker, `cdcd check` the brokers' other settings",
)
IDEMPOTENT_WRITE: Final = Acl("cluster", "", ("IdempotentWrite",), about="Brokers before 3.0 ask for it")


def of_topic(topic: str, prefix: str) -> Acl:
    """What the daemon does with one topic. A topic below the prefix gets the ACL of all that are."""
    acl = of_topics(prefix)
    return acl if topic.startswith(acl.name) else replace(acl, name=topic, is_prefixed=False)


def needed(prefix: str, slot: str) -> list[Acl]:
    """Everything that the daemon needs, and what it can do without at the end."""
    return [of_topics(prefix), *of_transactions(prefix, slot), OF_CLUSTER]


def acls_script(prefix: str, slot: str, principal: str, bootstrap: str) -> str:
    """A shell script with kafka-acls.sh; the environment may name other values."""
    lines = []
    for acl in needed("$PREFIX", "$SLOT"):
        if f"# {acl.about}." not in lines:
            lines.append(f"# {acl.about}.")
        lines.append(f'acls --add --allow-principal "$PRINCIPAL" {acl.options()}'.replace("'", '"'))
    body = "\n".join(lines)
    return f"""\
#!/bin/sh
# The least ACLs that cdcd needs. Run this script where Kafka's own tools are.
# `admin.properties` holds an administrator's credentials, in the names of Kafka's Java clients:
# security.protocol=SASL_SSL, sasl.mechanism=..., sasl.jaas.config=... `cdcd help privileges` shows one.
# On a cluster without log-in it may be empty.
#
#   PREFIX is sink.prefix, SLOT is source.slot.
set -eu
PRINCIPAL=${{PRINCIPAL:-{_word(principal)}}}
PREFIX=${{PREFIX:-{_word(prefix)}}}
SLOT=${{SLOT:-{_word(slot)}}}
BOOTSTRAP=${{BOOTSTRAP:-{_word(bootstrap)}}}
acls() {{ kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config "${{ADMIN:-admin.properties}}" "$@"; }}

{body}

# Readers need isolation.level=read_committed and a group of their own.
# acls --add --allow-principal User:reader --operation Read --operation Describe --resource-pattern-type prefixed \
--topic "$PREFIX."
# acls --add --allow-principal User:reader --operation Read --group reader
"""


def topics_script(prefix: str, bootstrap: str, own: Sequence[TopicSpec], tables: Sequence[TopicSpec]) -> str:
    """A shell script with kafka-topics.sh that makes these topics as cdcd would: its own, and those of tables."""
    lines = [_topic(spec, prefix) for spec in (*own, *tables)]
    if not tables:
        lines.append(f"# {_topic(TopicSpec(f'{prefix}.public.orders', 4, 1), prefix)}")
    replicas = {spec.replication_factor for spec in own}
    body = "\n".join(lines)
    return f"""\
#!/bin/sh
# cdcd makes these topics by itself. Run this script on clusters where only an administrator may make topics.
# Add a line like the last one for each table. You choose the partitions of a table's topic; the others have one.
set -eu
PREFIX=${{PREFIX:-{_word(prefix)}}}
BOOTSTRAP=${{BOOTSTRAP:-{_word(bootstrap)}}}
REPLICAS=${{REPLICAS:-{max(replicas)}}}
IN_SYNC=${{IN_SYNC:-$((REPLICAS > 1 ? REPLICAS - 1 : 1))}}
topic() {{ kafka-topics.sh --bootstrap-server "$BOOTSTRAP" --create --if-not-exists --replication-factor "$REPLICAS" \
--config min.insync.replicas="$IN_SYNC" "$@"; }}

{body}
"""


def _topic(spec: TopicSpec, prefix: str) -> str:
    config = "".join(f" --config {quote(f'{name}={value}')}" for name, value in spec.config.items() if name != _IN_SYNC)
    return f'topic --topic "$PREFIX{spec.name.removeprefix(prefix)}" --partitions {spec.partitions}{config}'


def _word(text: str) -> str:
    """A default inside ${NAME:-...}, which a shell reads as it is: names of Kafka hold nothing else."""
    return "".join(c for c in text if c.isalnum() or c in "._-:,=@/+ ")
