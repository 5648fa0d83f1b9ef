"""`cdcd files` lists, prints and writes what the manual calls deploy/..."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcd.cli.main import BAD_SETTING, OK, main
from cdcd.manual import shipped_files


def test_the_list_has_every_file_and_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["files"]) == OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines if line.startswith("  ")] == shipped_files.names()
    assert {*lines} >= {*shipped_files.FOLDERS.values()}


def test_a_file_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["files", "deploy/grafana/cdcd.json"]) == OK
    assert capsys.readouterr().out == shipped_files.text("grafana/cdcd.json")


def test_the_paths_of_the_manual_hold_below_a_directory_named_deploy(tmp_path: Path) -> None:
    to = tmp_path / "deploy"
    assert main(["files", "--to", str(to)]) == OK
    made = {path.relative_to(to).as_posix(): path.read_text() for path in to.rglob("*") if path.is_file()}
    assert made == {name: shipped_files.text(name) for name in shipped_files.names()}
    assert (to / "kafka/acls.sh").stat().st_mode & 0o111
    assert main(["files", "--to", str(to)]) == OK, "the same once more is no hindrance"


def test_a_file_that_a_person_has_changed_stays_without_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "prometheus/alerts.yml"
    mine.parent.mkdir()
    mine.write_text("mine")
    assert main(["files", "prometheus", "systemd", "--to", str(tmp_path)]) == BAD_SETTING
    assert "alerts.yml exists already. Name another place with --to, or add --force" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert main(["files", "prometheus", "systemd", "--to", str(tmp_path), "--force"]) == OK
    assert mine.read_text() == shipped_files.text("prometheus/alerts.yml")
    assert (tmp_path / "systemd/cdcd.service").exists()
    assert not (tmp_path / "kafka").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["helm"], "helm is a folder of"),
        (["systemd/cdcd.service", "alerts"], "There is no file alerts. cdcd files lists them"),
        (["alerts", "--to", "x"], "There is no file alerts"),
        (["--to", "/dev/null/x"], "/dev/null/x/"),
    ],
)
def test_what_cannot_be_done_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["files", *words]) == BAD_SETTING
    output = capsys.readouterr()
    assert said in output.err
    assert output.out == ""
