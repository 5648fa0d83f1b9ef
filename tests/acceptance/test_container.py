"""The image as it runs in a cluster: as process 1, without root, with a read-only root file system.

Needs root, and the root directory of the built image in CDCD_TEST_ROOTFS (`buildah mount`, or an unpacked export).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.stream import StreamFixture, eventually

ROOTFS = os.environ.get("CDCD_TEST_ROOTFS", "")
pytestmark = pytest.mark.skipif(not ROOTFS or os.geteuid() != 0, reason="CDCD_TEST_ROOTFS names no image's root")

UID = 9478
MOUNTS = """
set -e
mount --make-rprivate /
mount --rbind "$1" "$1"
mount -t tmpfs tmpfs "$1/var/lib/cdcd" -o mode=0755,uid=9478,gid=9478
mount --bind "$2" "$1/mnt"
mount -t proc proc "$1/proc"
mount -o remount,bind,ro "$1"
root=$1; shift 2
exec chroot --userspec=9478:9478 "$root" /usr/bin/env -i PATH=/opt/cdcd/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 \\
    PYTHONDONTWRITEBYTECODE=1 TMPDIR=/var/lib/cdcd "$@"
"""
"""Sets up a container, as its runtime would: the image's root, read-only except for the volume, and the settings."""


def contained(*command: str, folder: Path) -> list[str]:
    """The command line that runs a command of the image as process 1 of a PID namespace."""
    runtime = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", MOUNTS, "sh"]
    return [*runtime, ROOTFS, str(folder), *command]


@pytest.fixture
def mounted(stream: StreamFixture, tmp_path: Path) -> Path:
    """Give a directory with the settings; the image sees it as /mnt."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    text = stream.daemon().config.read_text()
    # The image has a place of its own for the spool, and no other.
    text = re.sub(r"^directory = .*$", 'directory = "/var/lib/cdcd/spool"', text, flags=re.MULTILINE)
    (folder / "cdcd.toml").write_text(text)
    folder.chmod(0o755)
    return folder


def test_the_image_streams_as_process_1_and_ends_in_order_on_sigterm(stream: StreamFixture, mounted: Path) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    log = mounted / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            contained("cdcd", "run", "--config", "/mnt/cdcd.toml", folder=mounted), stdout=output, stderr=output
        )
    try:
        eventually(lambda: "going on" in log.read_text() or process.poll() is not None, "a stream")
        stream.sql("INSERT INTO t SELECT generate_series(1, 1000)")
        eventually(lambda: stream.confirmed() >= stream.written(), "confirmation of all rows")
        [daemon] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        status = Path(f"/proc/{daemon}/status").read_text()
        assert f"NSpid:\t{daemon}\t1\n" in status, "the daemon is not process 1"
        assert f"Uid:\t{UID}\t{UID}\t{UID}\t{UID}\n" in status
        assert "CapEff:\t0000000000000000\n" in status
        began = time.monotonic()
        os.kill(int(daemon), signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - began < 5
    finally:
        process.kill()
        process.wait()
    assert "stopped" in log.read_text()
    assert len(stream.check(("public", "t"))) == 1000


def test_the_image_is_compiled_and_has_no_compiler_and_nothing_that_it_could_write_to(mounted: Path) -> None:
    def ask(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(contained(*command, folder=mounted), capture_output=True, text=True, check=False)

    assert "(compiled)" in ask("cdcd", "--version").stdout
    for absent in ("gcc", "cc", "/opt/cdcd/bin/pip"):
        assert ask("sh", "-c", f"command -v {absent}").returncode != 0, absent
    assert "Read-only file system" in ask("sh", "-c", "touch /opt/cdcd/x /etc/x /tmp/x").stderr
    assert ask("sh", "-c", "touch /var/lib/cdcd/x").returncode == 0
