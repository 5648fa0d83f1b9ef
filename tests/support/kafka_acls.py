"""`kafka-acls.sh` of the tests: makes the ACLs that Kafka's tool would make of the same options.

Before: a script of cdcd calls it as Kafka's tool. After: the broker.
"""

from __future__ import annotations

import argparse
import stat
import sys
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)


def install(folder: Path, bootstrap: str) -> None:
    """Put the tool into a folder for PATH. It talks to `bootstrap`, where everybody may do everything."""
    tool = folder / "kafka-acls.sh"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" --to {bootstrap} "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


def main() -> None:
    """Make the ACLs of one command."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in ("--to", "--bootstrap-server", "--command-config", "--allow-principal", "--resource-pattern-type"):
        parser.add_argument(option)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--topic")
    parser.add_argument("--transactional-id")
    parser.add_argument("--cluster", action="store_true")
    args = parser.parse_args()
    resources = [(ResourceType.TOPIC, args.topic), (ResourceType.TRANSACTIONAL_ID, args.transactional_id)]
    resources.append((ResourceType.BROKER, "kafka-cluster" if args.cluster else None))
    [(kind, name)] = [(kind, name) for kind, name in resources if name]
    pattern = ResourcePatternType[(args.resource_pattern_type or "literal").upper()]
    operations = {"DescribeConfigs": "DESCRIBE_CONFIGS", "IdempotentWrite": "IDEMPOTENT_WRITE"}
    bindings = [
        AclBinding(
            kind, name, pattern, args.allow_principal, "*", AclOperation[operations.get(word, word.upper())],
            AclPermissionType.ALLOW,
        )
        for word in args.operation
    ]  # fmt: skip
    admin = AdminClient({"bootstrap.servers": args.to})
    for done in admin.create_acls(bindings).values():
        done.result(30)


if __name__ == "__main__":
    main()
