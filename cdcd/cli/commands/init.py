"""`cdcd init`: looks at PostgreSQL and Kafka, and writes the settings, and the SQL and ACLs that they need.

Before: `cli.main` has parsed the options. After: a person, or `--apply`, runs the SQL and makes the ACLs; then come
`cdcd check` and `cdcd run`.

It connects as somebody who may look, and with `--apply` make things. The daemon connects as a role of its own, which
may do less. What `--apply` does may be done again: a run that was killed is run again.
"""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.cli.commands.check import filled, show
from cdcd.cli.setup import cautions, kafka, postgres, texts
from cdcd.cli.setup.answers import Answers, Dialogue, Login, answers, dsn_of_role, properties_of_file
from cdcd.cli.setup.files import write
from cdcd.cli.setup.first_settings import first_settings
from cdcd.config.settings import Settings
from cdcd.errors import CdcdError
from cdcd.preflight.findings import Finding, of_error
from cdcd.sink.acls import Acl, Places
from cdcd.source.session import Session
from cdcd.source.setup_sql import Step


def execute(args: Namespace, load: Load, out: TextIO) -> bool:  # noqa: ARG001  # it makes the settings
    """Look, write the files, and with `--apply` run them; return False if something could not be run."""
    dialogue = Dialogue(sys.stdin, out)
    dsn = dialogue.answer(args.dsn, "The database, as libpq takes it", "", "--dsn")
    with Session(dsn, "cdcd init") as session:
        login = postgres.log_in(session, dsn)
        out.write(f"{login}\n")
        return Initialization(args, login, answers(args, login, dialogue), out).run(session)


class Initialization:
    """One run of the command, once everything is answered."""

    def __init__(self, args: Namespace, login: Login, given: Answers, out: TextIO) -> None:
        self._config = Path(args.config)
        self._force = args.force
        self._applies = args.apply
        self._makes_topics = args.topics
        self._login = login
        self._given = given
        self._principal = args.principal or f"User:{given.properties.get('sasl.username', given.role)}"
        self._properties: dict[str, str | int] = {
            **given.properties,
            **properties_of_file(args.kafka_admin),
            "log_level": 0,
        }
        self._places = Places(given.brokers, given.prefix, given.slot, self._properties, self._principal)
        self._out = out

    def run(self, session: Session) -> bool:
        """Do it. Raises CdcdError before anything is written, if it cannot look or write."""
        cluster, failure = self._cluster()
        settings = first_settings(self._given, cluster)
        looking = self._looking(settings)
        facts = postgres.look(session, looking)
        self._show(postgres.problems(facts, looking))
        missing = kafka.needed_acls(looking)
        if failure is not None:
            self._show([of_error("brokers", failure)])
        elif cluster is not None:
            self._show(kafka.problems(facts, looking))
            missing = self._missing_acls(cluster, looking)
        self._show(cautions.problems(settings))
        made = texts.setup_steps(settings, self._given.role, self._login)
        self._write(settings, made, facts.tables, has_acls=not missing)
        has_sql, has_acls = False, not missing
        if self._applies:
            has_sql = self._run_sql(session, made)
            has_acls = has_acls or self._make_acls(looking, missing)
        self._say_next(has_sql=has_sql, has_acls=has_acls)
        return not self._applies or (has_sql and has_acls)

    def _cluster(self) -> tuple[kafka.Cluster | None, CdcdError | None]:
        if "sasl.username" in self._properties and "sasl.password" not in self._properties:
            self._out.write(
                "later    Kafka is not asked now: no sasl.password is given. Name a file that has one with "
                "--kafka-admin, or let cdcd check ask: the password lies in secrets_dir by then\n"
            )
            return None, None
        try:
            cluster = kafka.look(self._given.brokers, self._properties)
        except CdcdError as failure:
            return None, failure
        self._out.write(f"{cluster}\n")
        return cluster, None

    def _looking(self, settings: Settings) -> Settings:
        """The settings with the logins of whoever runs this."""
        source = settings.source.model_copy(update={"dsn": self._login.dsn})
        sink = settings.sink.model_copy(update={"librdkafka": self._properties})
        return settings.model_copy(update={"source": source, "sink": sink})

    def _missing_acls(self, cluster: kafka.Cluster, looking: Settings) -> list[Acl]:
        if not cluster.has_authorizer:
            self._out.write("Kafka has no authorizer: everybody may do everything, and no ACL is needed\n")
            return []
        try:
            return kafka.missing_acls(looking, self._principal)
        except CdcdError as failure:
            self._show([of_error("acls", failure)])
            return kafka.needed_acls(looking)

    def _write(
        self, settings: Settings, made: Sequence[Step], tables: Sequence[tuple[str, str]], *, has_acls: bool
    ) -> None:
        sql = texts.sql_path(self._config)
        files = {self._config: texts.settings_text(settings), sql: texts.sql_text(made, self._login, sql)}
        if not has_acls:
            files[texts.acls_path(self._config)] = texts.acls_text(settings, self._principal)
        if self._makes_topics:
            files[texts.topics_path(self._config)] = texts.topics_text(settings, tables)
        write(files, force=self._force)
        self._out.write(f"Wrote {', '.join(map(str, files))}\n")

    def _run_sql(self, session: Session, made: Sequence[Step]) -> bool:
        """Run the SQL; return whether all of it is done."""
        left = [step.name for step in made]
        for name, problem in postgres.run(session, made):
            if problem:
                self._out.write(f"not done {name}: {problem}\n")
                self._out.writelines(f"not done {each}: it comes after that\n" for each in left[1:])
            else:
                left.remove(name)
                self._out.write(f"done     {name}\n")
        return not left

    def _make_acls(self, looking: Settings, acls: Sequence[Acl]) -> bool:
        """Make the ACLs that are missing; return whether they are made."""
        try:
            kafka.make_acls(looking, self._principal, acls)
        except CdcdError as failure:
            self._out.write(f"not done ACLs of {self._principal}: {failure}\n")
            return False
        self._out.writelines(f"done     ACL of {self._principal}: {acl.options()}\n" for acl in acls)
        return True

    def _show(self, findings: Iterable[Finding]) -> None:
        """Show what stands in the way, and what a next step makes as what it is."""
        for finding in findings:
            if finding.code == "kafka-acl-missing":  # whoever looks is not the daemon's user
                script = texts.acls_path(self._config)
                self._out.write(f"later    {finding.message}. {script} lets {self._principal} do what it needs\n")
                continue
            show(filled(finding, self._places), self._out)

    def _say_next(self, *, has_sql: bool, has_acls: bool) -> None:
        """The next commands, in their order."""
        given, server = self._given, self._login.server
        steps = []
        if not has_sql:
            steps.append(
                f"Run the SQL: psql -v ON_ERROR_STOP=1 -f {shlex.quote(str(texts.sql_path(self._config)))} "
                f"{shlex.quote(dsn_of_role(self._login, server.role))}. Or add --apply to this command"
            )
        if "sasl.username" in given.properties:
            steps.append(
                f"Put the password of Kafka's user {given.properties['sasl.username']} into the file "
                "sink__librdkafka__sasl.password of secrets_dir (CDCD_SECRETS_DIR names the directory)"
            )
        if not has_acls:
            script = shlex.quote(str(texts.acls_path(self._config)))
            steps.append(
                f"Where Kafka's tools are: sh {script}. The administrator's log-in lies in admin.properties, "
                "in the names of Kafka's Java clients"
            )
        if self._makes_topics:
            steps.append(f"Then: sh {shlex.quote(str(texts.topics_path(self._config)))}")
        option = "" if self._config == Path("cdcd.toml") else f" --config {shlex.quote(str(self._config))}"
        steps.append(f"cdcd check{option}")
        if given.role != server.role:
            steps.append(
                f"A new role has no password. If cdcd check cannot log in as {given.role}: set one (psql: \\password "
                f"{given.role}), or give it a certificate and a line in pg_hba.conf. Put the password into ~/.pgpass, "
                "the file that PGPASSFILE names, or PGPASSWORD, or the whole dsn into a file source__dsn of "
                "secrets_dir. Then check again"
            )
        steps.append(f"cdcd run{option}")
        self._out.write("Next:\n")
        self._out.writelines(f"  {number}. {step}\n" for number, step in enumerate(steps, 1))
