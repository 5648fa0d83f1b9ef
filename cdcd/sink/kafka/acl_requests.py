"""Asks the brokers which ACLs a user has, and makes those that are missing: for `cdcd init`.

Before: `sink.acls` says which ACLs the daemon needs. After: the brokers.
Source: Kafka protocol guide, DescribeAcls and CreateAcls. To make an ACL that is there changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from cdcd.sink.acls import Acl
from cdcd.sink.kafka.admin_calls import AdminCalls
from cdcd.sink.kafka.client_config import KafkaConnection

TIMEOUT_S: Final = 15.0

_KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
_CLUSTER: Final = "kafka-cluster"
"""The name that the cluster has in its ACLs."""


class AclRequests:
    """The ACLs of one principal, such as `User:cdcd`. For one thread. Raises as `KafkaAdmin`."""

    def __init__(self, connection: KafkaConnection, principal: str) -> None:
        """`connection`: as a user who may see and alter ACLs."""
        self._calls = AdminCalls(connection, TIMEOUT_S)
        self._principal = principal

    def missing(self, needed: Sequence[Acl]) -> list[Acl]:
        """The ACLs among these that the brokers do not show to this user.

        All of them if the user may not see ACLs: the client then takes the brokers' error for an empty answer.
        """
        anything: Any = None
        kinds = ResourceType.ANY, anything, ResourcePatternType.ANY
        every = AclBindingFilter(*kinds, self._principal, anything, AclOperation.ANY, AclPermissionType.ALLOW)
        calls = self._calls
        with calls.asking("reading ACLs"):
            calls.cluster()
            [found] = calls.answers({"": calls.client.describe_acls(every, request_timeout=TIMEOUT_S)}).values()
        return [acl for acl in needed if not {*self._bindings(acl)} <= {*found}]

    def make(self, acls: Sequence[Acl]) -> None:
        """Make these ACLs."""
        calls, bindings = self._calls, [binding for acl in acls for binding in self._bindings(acl)]
        with calls.asking("making ACLs"):
            calls.cluster()
            calls.answers({**calls.client.create_acls(bindings, request_timeout=TIMEOUT_S)})

    def _bindings(self, acl: Acl) -> list[AclBinding]:
        pattern = ResourcePatternType.PREFIXED if acl.is_prefixed else ResourcePatternType.LITERAL
        return [
            AclBinding(
                _KINDS[acl.kind], acl.name or _CLUSTER, pattern, self._principal, "*", _operation(operation),
                AclPermissionType.ALLOW,
            )
            for operation in acl.operations
        ]  # fmt: skip

    def close(self) -> None:
        """End the client's threads."""
        self._calls.close()


def _operation(name: str) -> AclOperation:
    """Kafka's tools write DescribeConfigs what the client writes DESCRIBE_CONFIGS."""
    return AclOperation[
        {"DescribeConfigs": "DESCRIBE_CONFIGS", "IdempotentWrite": "IDEMPOTENT_WRITE"}.get(name, name.upper())
    ]
