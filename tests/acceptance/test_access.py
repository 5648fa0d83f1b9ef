"""Access to Kafka that is withdrawn while the daemon runs, and comes back: events wait for it, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import servers
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support.daemon import Daemon
from support.fix_postgres import Database
from support.stream import StreamFixture, metric

NOTICED_WITHIN_S = 60.0
PASSWORD = "s3cret"  # of the broker that this test starts


@pytest.fixture(scope="module")
def guarded_kafka() -> Iterator[servers.Kafka]:
    """Start a broker with ACLs, and with a listener for SASL next to the tests' plain one."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{module} required user_cdcd="{PASSWORD}";',
    }
    with servers.Kafka(settings=settings, listeners={"SASL": "SASL_PLAINTEXT"}) as server:
        yield server


class Denial:
    """Denies the user an operation on what begins with a name, as long as it is wanted."""

    def __init__(
        self, kafka: servers.Kafka, kind: ResourceType, prefix: str, operation: AclOperation = AclOperation.WRITE
    ) -> None:
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        whom = kind, prefix, ResourcePatternType.PREFIXED, "User:cdcd", "*"
        self._allowed = AclBinding(*whom, AclOperation.ALL, AclPermissionType.ALLOW)
        self._parts = (*whom, operation, AclPermissionType.DENY)

    def begin(self) -> None:
        # Without the first one, any ACL would deny all that it does not allow.
        for done in self._admin.create_acls([self._allowed, AclBinding(*self._parts)]).values():
            done.result(30)

    def end(self) -> None:
        for done in self._admin.delete_acls([AclBindingFilter(*self._parts)]).values():
            done.result(30)


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        (ResourceType.TOPIC, AclOperation.WRITE),
        (ResourceType.TOPIC, AclOperation.ALL),
        (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, AclOperation.ALL),
    ],
)
def test_a_right_that_is_withdrawn_for_a_moment_delays_events_and_loses_none(
    database: Database,
    guarded_kafka: servers.Kafka,
    prefix: str,
    tmp_path: Path,
    kind: ResourceType,
    operation: AclOperation,
) -> None:
    with StreamFixture(database.dsn, guarded_kafka.bootstrap, prefix, tmp_path) as stream:
        stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
        daemon = _daemon(stream, guarded_kafka).start()
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t SELECT n FROM generate_series(1, 100) n")
        daemon.wait_until_confirmed()
        denial = Denial(guarded_kafka, kind, prefix, operation)
        denial.begin()
        stream.sql("INSERT INTO t SELECT n FROM generate_series(101, 200) n")
        daemon.wait_for_log("AUTHORIZATION_FAILED", NOTICED_WITHIN_S)
        daemon.wait_for_log("starting again")
        assert metric(daemon, "cdcd_parked_tables") == 0
        denial.end()
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        stream.check(("public", "t"))


@pytest.mark.whole
def test_a_right_to_see_the_topics_that_is_withdrawn_from_an_idle_daemon_is_said_within_a_minute(
    database: Database, guarded_kafka: servers.Kafka, prefix: str, tmp_path: Path
) -> None:
    with StreamFixture(database.dsn, guarded_kafka.bootstrap, prefix, tmp_path) as stream:
        stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
        daemon = _daemon(stream, guarded_kafka).start()
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t SELECT n FROM generate_series(1, 100) n")
        daemon.wait_until_confirmed()
        denial = Denial(guarded_kafka, ResourceType.TOPIC, prefix, AclOperation.DESCRIBE)
        denial.begin()
        daemon.wait_for_log("TOPIC_AUTHORIZATION_FAILED", NOTICED_WITHIN_S)
        stream.sql("INSERT INTO t SELECT n FROM generate_series(101, 200) n")
        denial.end()
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        stream.check(("public", "t"))


def test_a_right_that_was_never_there_ends_the_daemon_with_the_hint(
    database: Database, guarded_kafka: servers.Kafka, prefix: str, tmp_path: Path
) -> None:
    with StreamFixture(database.dsn, guarded_kafka.bootstrap, prefix, tmp_path) as stream:
        stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
        Denial(guarded_kafka, ResourceType.TRANSACTIONAL_ID, prefix).begin()
        daemon = _daemon(stream, guarded_kafka).start()
        assert daemon.wait(60) == 1
        last = daemon.log.read_text().splitlines()[-1]
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in last
        assert "kafka-acls.sh --add" in last


def _daemon(stream: StreamFixture, kafka: servers.Kafka) -> Daemon:
    """Make a daemon that is `cdcd` to the broker; the test itself may do everything."""
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "cdcd"}
    own = {"bootstrap_servers": kafka.address("SASL"), "librdkafka": properties | {"sasl.password": PASSWORD}}
    return stream.daemon(sink=own)
