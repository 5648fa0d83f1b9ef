#!/usr/bin/env python3
"""An administrator's tools for a machine with Python alone: SQL, and as much of Kafka's as cdcd's hints use.

Before: `guarded_servers` copies it into the folder of a stranger, under the names in TOOLS. It needs psycopg and
confluent_kafka, which cdcd's environment has. After: the servers. It logs in as their administrator, whatever log-in a
command names.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

try:
    import psycopg
    from confluent_kafka import admin as kafka
except ImportError:
    sys.exit("Activate the environment in which cdcd is installed: this tool uses its libraries.")

TOOLS = ("sql", "kafka-configs.sh", "kafka-acls.sh", "kafka-topics.sh")
HERE = Path(__file__).absolute().parent.parent


def main() -> None:
    """Do what the name of the program says."""
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    if name == "sql":
        sql(*words)
        return
    lines = (HERE / "kafka-admin.properties").read_text().splitlines()
    properties: dict[str, Any] = dict(line.split("=", 1) for line in lines if "=" in line)
    admin = kafka.AdminClient(properties | {"bootstrap.servers": (HERE / "brokers").read_text().strip()})
    {"kafka-configs.sh": configs, "kafka-acls.sh": acls, "kafka-topics.sh": topics}[name](admin, words)


def sql(*words: str) -> None:
    """Run statements, or those of a file, and print the rows of the last one."""
    if not words:
        sys.exit("usage: sql 'STATEMENTS' [DATABASE], or sql -f FILE [DATABASE]")
    if words[0] == "-f":
        text, rest = Path(words[1]).read_text(), words[2:]
    else:
        text, rest = words[0], words[1:]
    more = {"dbname": rest[0]} if rest else {}
    with psycopg.connect((HERE / "admin-dsn").read_text().strip(), autocommit=True, **more) as connection:  # type: ignore[arg-type]
        statements = [text] if words[0] == "-f" or "$" in text else [part for part in text.split(";") if part.strip()]
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement.encode())
            print(cursor.statusmessage)
        if cursor.description:
            print(*(column.name for column in cursor.description), sep=" | ")
            for row in cursor.fetchall():
                print(*row, sep=" | ")


def configs(admin: Any, words: list[str]) -> None:
    """kafka-configs.sh --alter or --describe, of topics and brokers; --alter of users of SCRAM."""
    parser = _parser("--entity-type", "--entity-name", "--add-config", "--delete-config", "--topic")
    parser.add_argument("--alter", action="store_true")
    parser.add_argument("--describe", action="store_true")
    args = parser.parse_args(words)
    if args.entity_type == "users":
        users(admin, args)
        return
    entries = [
        kafka.ConfigEntry(*pair.split("=", 1), incremental_operation=kafka.AlterConfigOpType.SET)  # type: ignore[misc]
        for pair in (args.add_config or "").split(",")
        if pair
    ] + [
        kafka.ConfigEntry(name, None, incremental_operation=kafka.AlterConfigOpType.DELETE)
        for name in (args.delete_config or "").split(",")
        if name
    ]
    kind = kafka.ConfigResource.Type.BROKER if args.entity_type == "brokers" else kafka.ConfigResource.Type.TOPIC
    resource = kafka.ConfigResource(kind, args.entity_name or args.topic, incremental_configs=entries)
    if args.alter:
        admin.incremental_alter_configs([resource])[resource].result(30)
        print(f"Completed updating config for {args.entity_name or args.topic}.")
        return
    for name, entry in sorted(admin.describe_configs([resource])[resource].result(30).items()):
        if not entry.is_default:
            print(f"  {name}={entry.value}")


def users(admin: Any, args: argparse.Namespace) -> None:
    """Make a user of SCRAM or change the password; of --add-config, `SCRAM-SHA-512=[iterations=4096,password=...]`."""
    found = re.fullmatch(r"SCRAM-SHA-(256|512)=\[(?:iterations=(\d+),)?password=(.+)\]", args.add_config or "")
    if not args.alter or not found:
        sys.exit("This tool knows of users: --alter --add-config 'SCRAM-SHA-512=[password=...]'")
    info = kafka.ScramCredentialInfo(kafka.ScramMechanism[f"SCRAM_SHA_{found[1]}"], int(found[2] or 4096))
    change: Any = kafka.UserScramCredentialUpsertion(args.entity_name, info, found[3].encode())
    admin.alter_user_scram_credentials([change])[args.entity_name].result(30)
    print(f"Completed updating config for user {args.entity_name}.")


def acls(admin: Any, words: list[str]) -> None:
    """kafka-acls.sh --add or --list."""
    parser = _parser("--allow-principal", "--resource-pattern-type", "--topic", "--transactional-id", "--group")
    for flag in ("--add", "--list", "--cluster", "--force"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--operation", action="append", default=[])
    args = parser.parse_args(words)
    if args.list:
        nothing: Any = None
        anything = kafka.AclBindingFilter(
            kafka.ResourceType.ANY, nothing, kafka.ResourcePatternType.ANY, nothing, nothing, kafka.AclOperation.ANY,
            kafka.AclPermissionType.ANY,
        )  # fmt: skip
        for binding in admin.describe_acls(anything).result(30):
            print(
                binding.principal, binding.permission_type.name, binding.operation.name, binding.restype.name, end=" "
            )
            print(binding.name, binding.resource_pattern_type.name)
        return
    named = {
        kafka.ResourceType.TOPIC: args.topic,
        kafka.ResourceType.TRANSACTIONAL_ID: args.transactional_id,
        kafka.ResourceType.GROUP: args.group,
        kafka.ResourceType.BROKER: "kafka-cluster" if args.cluster else None,
    }
    pattern = kafka.ResourcePatternType[(args.resource_pattern_type or "literal").upper()]
    operations = {
        "DescribeConfigs": "DESCRIBE_CONFIGS",
        "AlterConfigs": "ALTER_CONFIGS",
        "IdempotentWrite": "IDEMPOTENT_WRITE",
    }
    bindings = [
        kafka.AclBinding(
            kind, name, pattern, args.allow_principal, "*", kafka.AclOperation[operations.get(word, word.upper())],
            kafka.AclPermissionType.ALLOW,
        )
        for kind, name in named.items()
        if name
        for word in args.operation
    ]  # fmt: skip
    for done in admin.create_acls(bindings).values():
        done.result(30)
    print(f"Added {len(bindings)} ACLs.")


def topics(admin: Any, words: list[str]) -> None:
    """kafka-topics.sh --list, --create or --delete."""
    parser = _parser("--topic", "--partitions", "--replication-factor")
    for flag in ("--list", "--create", "--delete", "--if-not-exists", "--describe"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--config", action="append", default=[])
    args = parser.parse_args(words)
    if args.create:
        config = dict(pair.split("=", 1) for pair in args.config)
        new = kafka.NewTopic(args.topic, int(args.partitions or 1), int(args.replication_factor or 1), config=config)
        admin.create_topics([new])[args.topic].result(30)
    elif args.delete:
        admin.delete_topics([args.topic])[args.topic].result(30)
    else:
        for name, topic in sorted(admin.list_topics(timeout=30).topics.items()):
            if args.topic in {None, name}:
                print(name, f"partitions={len(topic.partitions)}" if args.describe else "")


def _parser(*options: str) -> argparse.ArgumentParser:
    """Return a parser with these options, and those by which Kafka's tools log in."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in ("--bootstrap-server", "--command-config", *options):
        parser.add_argument(option)
    return parser


if __name__ == "__main__":
    main()
