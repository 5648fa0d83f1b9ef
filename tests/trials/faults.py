"""A world in which cdcd ran well for two databases, and then five faults that its user mends in any order.

Before: `guarded_servers`. After: the user, and `judge`, which reads what was planted.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from psycopg.conninfo import make_conninfo
from support.daemon import command, environment
from trials.guarded_servers import PASSWORDS, Folder, GuardedServers

WAL_LIMIT_MB = 64
LARGEST_MESSAGE_BYTES = 65536
NOTE = "INSERT INTO orders (customer_id, status, total, note) SELECT min(c.id), 'shipped', 99, (SELECT string_agg("
NOTE += "md5(n::text || random()), '') FROM generate_series(1, 12000) n) FROM customers c"
"""An order with a note of 384 kB, which compression does not make small enough."""

SETTINGS = """[source]
dsn = "{dsn}"
slot = "{slot}"
tables = ["public.*"]

[sink]
bootstrap_servers = "{brokers}"
prefix = "{prefix}"
on_unpublishable = "park"

[sink.librdkafka]
"security.protocol" = "SASL_SSL"
"ssl.ca.location" = "{there}/ca.pem"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "cdcd"
"sasl.password" = "{password}"

[spool]
directory = "{there}/spool"

[monitoring]
port = {monitoring}
"""

START = """#!/bin/sh
# start [NAME]: starts the daemon of NAME.toml (default: cdcd) in the background; its log is NAME.log
cd "$(dirname "$0")" || exit 1
name=${1:-cdcd}
nohup cdcd run --config "$name.toml" >>"$name.log" 2>&1 </dev/null &
echo $! >"$name.pid"
echo "started $name as process $!; to end it: kill $!"
"""

NEW_CERTIFICATE = """#!/bin/sh
# new-certificate [DAYS]: makes a new certificate of the client cdcd, signed by the CA; the key stays
cd "$(dirname "$0")" || exit 1
set -e
openssl req -new -key cdcd.key -subj "/CN=cdcd" -out cdcd.csr
signed="-CA ca.pem -CAkey ca/ca.key -CAcreateserial -CAserial ca/serial"
openssl x509 -req -in cdcd.csr $signed -days "${1:-90}" -out cdcd.crt
rm cdcd.csr
openssl x509 -in cdcd.crt -noout -subject -enddate
"""

BILLING = """
CREATE TABLE invoices (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount numeric(12,2) NOT NULL, paid timestamptz
);
CREATE TABLE payments (invoice_id bigint PRIMARY KEY REFERENCES invoices, at timestamptz NOT NULL DEFAULT now());
"""
INVOICE = """
WITH made AS (INSERT INTO invoices (amount) VALUES (round((random() * 500)::numeric, 2)) RETURNING id),
settled AS (UPDATE invoices SET paid = now() WHERE id = (SELECT min(id) FROM invoices WHERE paid IS NULL) RETURNING id)
INSERT INTO payments (invoice_id) SELECT id FROM settled ON CONFLICT DO NOTHING
"""


PLANTED = {
    "wrong grant": (
        "cdcd lacks SELECT on public.reviews in shop.",
        "It may read it, and verify finds no difference there.",
    ),
    "full WAL limit": (
        f"max_slot_wal_keep_size = {WAL_LIMIT_MB}MB was reached: the slot cdcd is lost.",
        "The limit is larger, a daemon streams from the slot, and verify of shop finds no difference.",
    ),
    "parked table": (
        f"shop.public.orders has max.message.bytes = {LARGEST_MESSAGE_BYTES}, and one order a note of 384 kB.",
        "`cdcd unpark` lists nothing, and verify of public.orders finds no difference.",
    ),
    "expired certificate": (
        "cdcd.crt expired yesterday.",
        "It is valid, ca.pem signed it, and it fits its key.",
    ),
    "dropped slot": (
        "The slot cdcd_billing was dropped.",
        "A daemon streams from it, and verify of billing finds no difference.",
    ),
}
"""What is wrong, and when it is mended."""


class Billing(threading.Thread):
    """Writes an invoice a second, also after PostgreSQL was restarted."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn

    def run(self) -> None:
        """Write for ever."""
        while True:
            try:
                with psycopg.connect(self._dsn, autocommit=True) as connection:
                    while True:
                        connection.execute(INVOICE)
                        time.sleep(1)
            except psycopg.Error:
                time.sleep(2)


class Work:
    """What the user did before the trial, and what went wrong since."""

    def __init__(self, guarded: GuardedServers, folder: Folder, answers: Path) -> None:
        self._guarded, self._folder, self._answers = guarded, folder, answers
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def run_well(self) -> None:
        """Do what the manual says, and run both daemons until Kafka has all; both run afterwards."""
        guarded, folder = self._guarded, self._folder
        self._sql("CREATE DATABASE billing TEMPLATE template0 OWNER app")
        self._sql(BILLING, "billing", "app")
        Billing(guarded.dsn("billing", "app")).start()
        certificate = guarded.sign(is_expired=False)
        (folder.here / "ca").mkdir(exist_ok=True)
        folder.write("ca/ca.key", guarded.ca.private_key_pem.bytes(), 0o600)
        folder.write("cdcd.key", certificate.private_key_pem.bytes(), 0o600)
        folder.write("cdcd.crt", certificate.cert_chain_pems[0].bytes())
        folder.write("pgpass", f"localhost:*:*:cdcd:{PASSWORDS['cdcd']}\n", 0o600)
        folder.write("start", START, 0o755)
        folder.write("new-certificate", NEW_CERTIFICATE, 0o755)
        for name, database, slot, monitoring in (
            ("cdcd", "shop", "cdcd", 9481),
            ("billing", "billing", "cdcd_billing", 9482),
        ):
            self._init(database, slot)
            folder.write(f"{name}.toml", self._settings(database, slot, monitoring), 0o600)
        self._sql(f"ALTER ROLE cdcd PASSWORD '{PASSWORDS['cdcd']}'")
        for name in ("cdcd", "billing"):
            self._start(name)
        for slot in ("cdcd", "cdcd_billing"):
            self._until(partial(self._is_confirmed, slot), f"progress of {slot}")

    def kill(self) -> None:
        """Leave no daemon behind, whatever went wrong."""
        for daemon in self._daemons.values():
            daemon.kill()

    def plant(self) -> None:
        """Break five things, and write down what they are."""
        folder = self._folder
        self._park()
        for daemon in self._daemons.values():
            daemon.terminate()
            if daemon.wait(60) != 0:
                raise RuntimeError("a daemon did not end well")
        self._seen_logs()
        # A missing grant: a table that was made by a script which grants nothing to cdcd.
        self._sql(
            "CREATE TABLE reviews (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, sku text NOT NULL, stars int);"
            "INSERT INTO reviews (sku, stars) SELECT sku, 1 + length(sku) % 5 FROM products;"
            "REVOKE ALL ON reviews FROM cdcd", "shop", "app",
        )  # fmt: skip
        self._exceed_wal()
        self._sql("SELECT pg_drop_replication_slot('cdcd_billing')")
        expired = self._guarded.sign(is_expired=True)
        folder.write("cdcd.key", expired.private_key_pem.bytes(), 0o600)
        folder.write("cdcd.crt", expired.cert_chain_pems[0].bytes())
        facts = {
            "seen_as": folder.seen_as,
            "dsn": self._guarded.dsn("shop").replace(str(self._guarded._home), str(folder.here)),
            "wal_limit_mb": WAL_LIMIT_MB,
            "planted": PLANTED,
        }
        self._answers.write_text(json.dumps(facts, indent=2) + "\n")

    def _park(self) -> None:
        """Let Kafka refuse an order while the daemon runs."""
        entry = ConfigEntry(
            "max.message.bytes", str(LARGEST_MESSAGE_BYTES), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, "shop.public.orders", incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self._guarded.kafka.bootstrap, "log_level": 0})
        admin.incremental_alter_configs([resource])[resource].result(30)
        self._sql(NOTE, "shop", "app")
        self._until(lambda: "is parked" in (self._folder.here / "cdcd.log").read_text(), "a parked table")
        for slot in ("cdcd", "cdcd_billing"):
            self._until(partial(self._is_confirmed, slot), f"progress of {slot}")

    def _exceed_wal(self) -> None:
        """Fill segments of WAL until PostgreSQL gives up the slot."""
        self._sql(f"ALTER SYSTEM SET max_slot_wal_keep_size = '{WAL_LIMIT_MB}MB'")
        self._sql("SELECT pg_reload_conf()")

        def is_lost() -> bool:
            for _ in range(3):
                self._sql("SELECT pg_logical_emit_message(true, 'month-end', 'x')")
                self._sql("SELECT pg_switch_wal()")
            self._sql("CHECKPOINT")
            return self._value("SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = 'cdcd'")

        self._until(is_lost, "a lost slot")

    def _init(self, database: str, slot: str) -> None:
        """Let `cdcd init` make the role, the publication, the grants and the ACLs."""
        guarded = self._guarded
        with tempfile.TemporaryDirectory() as folder:
            properties = Path(folder, "admin.properties")
            properties.touch(0o600)
            properties.write_text(guarded.admin_properties)
            login = guarded.properties("cdcd")
            del login["bootstrap.servers"]
            kafka = [word for name, value in login.items() for word in ("--kafka", f"{name}={value}")]
            self._cdcd(
                "init", "--apply", "--role", "cdcd", "--prefix", database, "--slot", slot, "--publication", "cdcd",
                "--tables", "public.*", "--dsn", guarded.dsn(database), "--kafka-admin", str(properties), *kafka,
                "--brokers", guarded.brokers, "--config", str(Path(folder, "cdcd.toml")),
            )  # fmt: skip

    def _settings(self, database: str, slot: str, monitoring: int) -> str:
        there = self._folder.seen_as
        dsn = make_conninfo(
            "", host="localhost", port=str(self._guarded.postgres.port), dbname=database, user="cdcd",
            sslmode="verify-full", sslrootcert=f"{there}/ca.pem", sslcert=f"{there}/cdcd.crt",
            sslkey=f"{there}/cdcd.key", passfile=f"{there}/pgpass",
        )  # fmt: skip
        return SETTINGS.format(
            dsn=dsn, slot=slot, prefix=database, there=there, password=PASSWORDS["cdcd"], monitoring=monitoring,
            brokers=self._guarded.brokers,
        )  # fmt: skip

    def _start(self, name: str) -> None:
        here = self._folder.here
        settings = Path(self._guarded._home, f"{name}.toml")
        settings.write_text((here / f"{name}.toml").read_text().replace(self._folder.seen_as, str(here)))
        with (here / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [*command(), "run", "--config", str(settings)], stdout=log, stderr=log, env=environment()
            )

    def _seen_logs(self) -> None:
        """Write the logs' paths as the user sees them."""
        for name in self._daemons:
            log = self._folder.here / f"{name}.log"
            text = log.read_text().replace(f"{self._guarded._home}/{name}.toml", f"{self._folder.seen_as}/{name}.toml")
            log.write_text(text.replace(str(self._folder.here), self._folder.seen_as))

    def _cdcd(self, *words: str) -> None:
        done = subprocess.run(
            [*command(), *words], capture_output=True, text=True, env=environment(), check=False, timeout=120
        )
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)

    def _is_confirmed(self, slot: str) -> bool:
        if any(daemon.poll() is not None for daemon in self._daemons.values()):
            raise RuntimeError("a daemon has ended: see its log")
        target = self._value("SELECT pg_current_wal_lsn()::text")
        time.sleep(2)
        return self._value(
            f"SELECT coalesce((SELECT confirmed_flush_lsn >= '{target}' FROM pg_replication_slots"
            f" WHERE slot_name = '{slot}'), false)"
        )

    @staticmethod
    def _until(ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 120
        while not ready():
            if time.monotonic() > deadline:
                raise RuntimeError(f"no {what} after 120 s")
            time.sleep(0.2)

    def _sql(self, statements: str, database: str = "shop", user: str = "postgres") -> None:
        with psycopg.connect(self._guarded.dsn(database, user), autocommit=True) as connection:
            connection.execute(statements.encode())

    def _value(self, query: str) -> bool:
        with psycopg.connect(self._guarded.dsn("shop"), autocommit=True) as connection:
            row = connection.execute(query.encode()).fetchone()
            return row[0] if row else False
