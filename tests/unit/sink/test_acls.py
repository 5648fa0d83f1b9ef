"""The ACLs that a person makes by the script are those that the daemon needs."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from cdcd.sink.acls import Places, acls_script, needed, of_topic, of_topics, of_transactions, topics_script
from cdcd.sink.own_topics import altering_command
from cdcd.sink.topics import TopicNames, TopicSpec, own_specs


def run(script: str, folder: Path) -> list[list[str]]:
    """Run a script with tools that print their arguments."""
    for tool in ("kafka-acls.sh", "kafka-topics.sh"):
        (folder / tool).write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done; echo\n')
        (folder / tool).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", script], env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    return [line.rstrip("\0").split("\0") for line in done.stdout.splitlines()]


@pytest.mark.parametrize("principal", ["User:cdcd", "User:CN=cdcd,OU=a b"])
def test_the_script_makes_what_is_needed_and_no_more(principal: str, tmp_path: Path) -> None:
    made = run(acls_script("shop", "s", principal, "kafka:9093"), tmp_path)
    began = ["--bootstrap-server", "kafka:9093", "--command-config", "admin.properties", "--add", "--allow-principal"]
    assert made == [[*began, principal, *shlex.split(acl.options())] for acl in needed("shop", "s")]


@pytest.mark.parametrize("name", ["$(touch made)", "`touch made`", '"; touch made; "', "}; touch made; {"])
def test_no_name_is_a_command_of_the_shell(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(acls_script(name, name, name, name), tmp_path)
    assert not (tmp_path / "made").exists()


def test_the_topics_are_made_as_the_daemon_would(tmp_path: Path) -> None:
    names = TopicNames("shop")
    own = own_specs(names, 3, {"min.insync.replicas": "2"})
    made = run(topics_script("shop", "k:9092", own, [TopicSpec(names.topic("a.b", "c"), 6, 3)]), tmp_path)
    assert [words[words.index("--topic") + 1] for words in made] == [*(spec.name for spec in own), "shop.a-2eb.c"]
    assert made[-1][-2:] == ["--partitions", "6"]
    for words in made:
        assert words.count("min.insync.replicas=2") == 1
        assert words[words.index("--replication-factor") + 1] == "3"


def test_a_topic_of_the_prefix_gets_the_acl_of_the_prefix_and_another_its_own() -> None:
    assert of_topic("shop.public.orders", "shop").options().endswith("--resource-pattern-type prefixed --topic shop.")
    assert of_topic("shopping.orders", "shop").options().endswith("--operation Read --topic shopping.orders")


def test_a_hint_gets_the_names_of_the_settings_and_no_log_in_that_the_cluster_does_not_need() -> None:
    hint = f"Run: {of_topics('PREFIX').command()}; {of_transactions('PREFIX', 'SLOT')[0].command()}"
    login = {"security.protocol": "SASL_SSL", "sasl.username": "app"}
    found = Places("k1:9093,k2:9093", "shop", "orders", login).filled(hint)
    assert "--allow-principal User:app " in found
    assert "--topic shop. --bootstrap-server k1:9093,k2:9093 --command-config admin.properties" in found
    assert "--transactional-id shop-orders --bootstrap-server" in found
    plain = Places("k:9092", "shop", "orders", {}).filled(hint)
    assert plain.endswith("--bootstrap-server k:9092")
    assert "admin.properties" not in plain
    assert "--allow-principal User:... " in plain, "nobody knows the name"
    assert Places("k:9092", "shop", "s", {}).filled("Set PREFIX") == "Set PREFIX"


@pytest.mark.parametrize("word", ["PREFIX", "SLOT", "BROKERS"])
def test_a_topic_that_is_named_like_a_word_of_the_hints_keeps_its_name(word: str) -> None:
    command = altering_command(f"shop.public.{word}", "cleanup.policy=delete")
    filled = Places("k:9092", "shop", "s", {}).filled(command)
    assert f"--entity-name shop.public.{word} " in filled
    assert filled.endswith("--bootstrap-server k:9092")


def test_what_the_settings_hold_runs_nothing_in_a_shell() -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.username": "$ConnectionString"}
    filled = Places("k:9092; exit 7", "shop", "s", login).filled(of_topics("PREFIX").command())
    words = shlex.split(filled)
    assert words[words.index("--allow-principal") + 1] == "User:$ConnectionString"
    assert words[words.index("--bootstrap-server") + 1] == "k:9092; exit 7"
    assert "'User:$ConnectionString'" in filled


def test_a_setting_of_a_topic_runs_nothing_in_a_shell() -> None:
    assert "--add-config 'x=$(exit 7)' " in altering_command("t", "x=$(exit 7)")
