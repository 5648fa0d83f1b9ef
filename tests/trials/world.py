#!/usr/bin/env python3
"""The world in which a stranger tries cdcd with nothing but its README: servers, and what their owner knows.

    python tests/trials/world.py plain
    python tests/trials/world.py secured --files CHROOT/root/servers --seen-as /root/servers
    python tests/trials/world.py broken --files CHROOT/root/faults --seen-as /root/faults --answers answers.json
    python tests/trials/world.py judge --files CHROOT/root/faults --answers answers.json

A world runs until SIGTERM, on ports of its own, so that all three can run at once. `secured` has TLS, passwords and
ACLs, and nothing of cdcd. In `broken` cdcd ran well; then `faults` plants five faults, and says nothing of them.
`judge` looks whether each is mended; its exit code is 0 if all are.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import psycopg  # noqa: E402
import servers  # noqa: E402
from demo import shop  # noqa: E402
from trials import faults, judge  # noqa: E402
from trials.guarded_servers import Folder, GuardedServers  # noqa: E402

PORTS = {"plain": (54101, 59101), "secured": (54102, 59102), "broken": (54103, 59103)}
"""PostgreSQL's port, and the one of Kafka."""

WRITES_A_SECOND = 4.0


class Shop(threading.Thread):
    """Keeps the shop busy, also after PostgreSQL was restarted."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn

    def run(self) -> None:
        """Serve customers for ever; a workload ends with its connection."""
        while True:
            workload = shop.Workload(self._dsn, WRITES_A_SECOND)
            workload.run()
            threading.Event().wait(2)


def main() -> int:
    """Make the world that the command line names, or judge one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=[*PORTS, "judge"])
    parser.add_argument("--files", type=Path, help="the folder for what the user has on his machine")
    parser.add_argument("--seen-as", help="its path as the user sees it, for example in a chroot")
    parser.add_argument("--answers", type=Path, help="the file that says what was planted; keep it from the user")
    args = parser.parse_args()
    if args.kind != "plain" and args.files is None:
        parser.error(f"{args.kind} needs --files")
    if args.kind in {"broken", "judge"} and args.answers is None:
        parser.error(f"{args.kind} needs --answers")
    if args.kind == "judge":
        return judge.judge(args.files.absolute(), args.answers)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ExitStack() as stack:
        try:
            make(args, stack)
            signal.pause()
        except KeyboardInterrupt:
            pass
    return 0


def make(args: argparse.Namespace, stack: ExitStack) -> None:
    """Start the servers and the writers, and say what the user knows."""
    postgres_port, kafka_port = PORTS[args.kind]
    print(f"PostgreSQL 18 on localhost:{postgres_port}, Kafka on localhost:{kafka_port}", flush=True)
    if args.kind == "plain":
        postgres = stack.enter_context(servers.PostgreSQL(18, port=postgres_port))
        kafka = stack.enter_context(servers.Kafka(port=kafka_port))
        with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
            admin.execute("CREATE ROLE app LOGIN")
            admin.execute("CREATE DATABASE shop TEMPLATE template0 OWNER app")
        dsn = postgres.dsn("shop", user="app")
        shop.create(dsn)
        Shop(dsn).start()
        print(PLAIN.format(postgres=postgres_port, kafka=kafka.port), flush=True)
        return
    folder = Folder(args.files.absolute(), args.seen_as or str(args.files.absolute()))
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=servers.default_home() / "run")))
    guarded = GuardedServers(home, folder, stack, postgres_port, kafka_port, wants_certificate=args.kind == "broken")
    shop.create(guarded.dsn("shop", "app"))
    Shop(guarded.dsn("shop", "app")).start()
    said = SECURED.format(**guarded.known(), there=folder.seen_as)
    if args.kind == "broken":
        work: Any = faults.Work(guarded, folder, args.answers)
        stack.callback(work.kill)
        work.run_well()
        work.plant()
        said += BROKEN.format(there=folder.seen_as)
    folder.write("SERVERS.txt", said)
    print(said, flush=True)


PLAIN = """
Your servers are ready. This is what you know of them:

PostgreSQL 18, database "shop", with the tables customers, products, orders and order_items of a small shop. A program,
which logs in as "app" and owns the tables, changes a few rows a second.
    as its superuser, without a password:   host=localhost port={postgres} dbname=shop user=postgres
Kafka, one broker, without TLS and passwords:
    localhost:{kafka}
"""

SECURED = """
Your servers are ready. This is what you know of them:

PostgreSQL 18, database "shop", with the tables customers, products, orders and order_items of a small shop. A program,
which logs in as "app" and owns the tables, changes a few rows a second. All clients use TLS and a password (SCRAM).
    its superuser:   {admin_dsn}
    password:        {admin_password}
    (the file {there}/admin-dsn has both)
    pg_hba.conf:     {hba}
Kafka, one broker, SASL_SSL with SCRAM-SHA-512, and ACLs. Nobody but the administrator may do what no ACL allows.
    broker:          {brokers}
    administrator:   {there}/kafka-admin.properties
    user for cdcd:   cdcd, password "{kafka_password}"; it has no ACLs but those that you made
The CA of both:      {there}/ca.pem

There is no psql and no Kafka on this machine. In their place are, once cdcd's environment is active:
    {there}/tools/sql 'SELECT 1; SELECT 2' [DATABASE]      (or: sql -f FILE [DATABASE])     as the superuser
    {there}/tools/kafka-configs.sh, kafka-acls.sh, kafka-topics.sh                   as the administrator
"""

BROKEN = """
You have run cdcd here for a while: one daemon for the database "shop" ({there}/cdcd.toml)
and one for the database "billing" ({there}/billing.toml), with the topics shop.* and billing.*.
Both log in with the client certificate cdcd.crt. Once cdcd's environment is active:
    {there}/start            starts the daemon of cdcd.toml in the background; its log is cdcd.log
    {there}/start billing    the same of billing.toml; its log is billing.log
    {there}/new-certificate  makes a new cdcd.crt, signed by your CA
The machine was down for some time. Neither daemon runs now. Make both run,
so that both databases arrive whole in Kafka again.
"""


if __name__ == "__main__":
    sys.exit(main())
