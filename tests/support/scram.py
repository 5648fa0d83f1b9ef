"""Users of Kafka who log in by SCRAM-SHA-512 at the listener SASL, and what its broker needs for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

_ITERATIONS: Final = 4096


def broker_settings(keystore: Path) -> dict[str, str]:
    """The settings of a broker whose listener SASL has TLS by this keystore; `admin` may do everything."""
    return {
        "super.users": "User:ANONYMOUS;User:admin",
        "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
    }


def add_users(bootstrap: str, passwords: Mapping[str, str]) -> None:
    """Make these users. `bootstrap`: a listener without a log-in."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    users: list[Any] = [UserScramCredentialUpsertion(name, info, word.encode()) for name, word in passwords.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for done in admin.alter_user_scram_credentials(users).values():
        done.result(30)
