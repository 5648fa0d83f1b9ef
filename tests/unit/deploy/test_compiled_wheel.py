"""The quickstart takes a compiled wheel only if it is of this checkout."""

from __future__ import annotations

import platform
import sys
import zipfile
from pathlib import Path

import pytest
from demo.compiled_wheel import fitting_wheel

PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="manylinux wheels need glibc")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "cdcd").mkdir()
    (tmp_path / "cdcd" / "__init__.py").write_text("x = 1\n")
    (tmp_path / "dist").mkdir()
    return tmp_path


def make(checkout: Path, tags: str, text: str = "x = 1\n") -> Path:
    wheel = checkout / "dist" / f"cdcd-0.1.0-{tags}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("cdcd/__init__.py", text)
        archive.writestr("cdcd/hot.so", "")
    return wheel


@glibc
def test_a_wheel_of_these_sources_for_this_python_and_processor_is_taken(checkout: Path) -> None:
    wheel = make(checkout, f"{PYTHON}-{PYTHON}-manylinux_2_17_{platform.machine()}")
    assert fitting_wheel(checkout) == wheel


@pytest.mark.parametrize(
    "tags", ["py3-none-any", "cp39-cp39-manylinux_2_17_x86_64", f"{PYTHON}-{PYTHON}-manylinux_2_17_vax"]
)
def test_a_wheel_for_another_machine_is_not_taken(checkout: Path, tags: str) -> None:
    make(checkout, tags)
    assert fitting_wheel(checkout) is None


def test_a_wheel_of_other_sources_is_not_taken(checkout: Path) -> None:
    make(checkout, f"{PYTHON}-{PYTHON}-manylinux_2_17_{platform.machine()}", "x = 2\n")
    assert fitting_wheel(checkout) is None
