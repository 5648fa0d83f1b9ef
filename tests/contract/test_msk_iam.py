"""Tokens of MSK's IAM let every client in at a gate that verifies the signature, and renewed credentials are used."""

from __future__ import annotations

from contextlib import closing

import pytest
import servers
from support.fix_aws import KEY, SECRET, Credentials
from support.iam_gates import MskGate

from cdcd.errors import AccessDenied, KafkaUnavailable
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection, with_token_function
from cdcd.sink.kafka.cluster_probe import ClusterProbe
from cdcd.sink.kafka.idempotent_producer import IdempotentProducer
from cdcd.sink.kafka.token_function import MSK_IAM, TokenFunction


def test_tokens_of_msk_let_in_and_what_fails_is_named(aws: Credentials) -> None:
    kafka = servers.Kafka(listeners={"MSK": "PLAINTEXT"})
    with MskGate(kafka.port_of("MSK"), {KEY: SECRET}) as gate:
        kafka.settings["advertised.listeners"] = f"PLAINTEXT://{kafka.bootstrap},MSK://127.0.0.1:{gate.port}"
        bootstrap = f"127.0.0.1:{gate.port}"

        def connection() -> KafkaConnection:
            """As a process has it that starts now."""
            properties = {"security.protocol": "SASL_PLAINTEXT"}
            function = TokenFunction(MSK_IAM, bootstrap)
            return KafkaConnection(bootstrap, "cdcd", with_token_function(properties, function)).silent()

        with kafka:
            known = connection()
            with closing(KafkaAdmin(known)) as admin:
                assert admin.partitions(["missing"]) == {}
            with closing(IdempotentProducer(known, 10.0)) as producer:
                assert producer.start(lambda: False)
            with closing(ClusterProbe(known, "missing")) as probe:
                probe.ask()
            assert set(gate.admitted) == {KEY}
            # AWS does not know the key any more.
            gate.secrets = {"AKIDSECOND": SECRET}
            with closing(KafkaAdmin(connection())) as admin, pytest.raises(AccessDenied, match="its credential is for"):
                admin.partitions(["missing"])
            aws.remove()
            with pytest.raises(KafkaUnavailable, match='"aws-msk-iam" made no token: it found no credentials of AWS'):
                KafkaAdmin(connection())
            aws.write("AKIDSECOND")
            with closing(KafkaAdmin(connection())) as admin:
                assert admin.partitions(["missing"]) == {}
            assert set(gate.admitted) == {KEY, "AKIDSECOND"}
