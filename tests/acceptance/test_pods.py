"""What the pods of the chart and of the manifests run, as processes: their commands, with the rendered files mounted.

No cluster is needed: a folder stands for the root of the pod's file system. The image's file system itself is tested in
`test_container.py`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from servers.processes import free_port
from support.chart import Manifest, kustomized, needs_helm, needs_kubectl, rendered
from support.daemon import command, environment
from support.stream import StreamFixture, Writer, eventually


class Pod:
    """A pod whose volumes lie below a folder. They lie as the kubelet mounts them, behind a link to a folder."""

    def __init__(self, root: Path, spec: Manifest, objects: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        """`objects`: the files of each ConfigMap and Secret, by kind and name."""
        self.root = root
        self.spec = spec
        [self.container] = spec["containers"]
        self._mounts = {each["name"]: each["mountPath"] for each in self.container["volumeMounts"]}
        self._versions = 0
        self.mount(objects)

    def mount(self, objects: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        """Mount the volumes, or replace what is in them."""
        self._versions += 1
        for volume in self.spec["volumes"]:
            folder = Path(self.within(self._mounts[volume["name"]]))
            folder.mkdir(parents=True, exist_ok=True)
            if "configMap" in volume:
                self._fill(folder, objects["ConfigMap", volume["configMap"]["name"]])
            elif "secret" in volume:
                self._fill(folder, objects["Secret", volume["secret"]["secretName"]])

    def within(self, text: str) -> str:
        """`text`, in which the places of mounts are below the folder."""
        for path in self._mounts.values():
            text = text.replace(path, f"{self.root}{path}")
        return text

    @contextmanager
    def process(self, log: Path, more: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        """Start the container's command, with the environment of the pod and the variables `more`."""
        given = {each["name"]: each["value"] for each in self.container.get("env", [])}
        arguments = [self.within(each) for each in self.container["args"]]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command(), *arguments], stdout=output, stderr=output, env={**environment(), **given, **more}
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, log: Path, more: Mapping[str, str]) -> int:
        """Run the command to its end, and return the exit code."""
        with self.process(log, more) as process:
            return process.wait(60)

    def probe(self, kind: str, ports: Mapping[str, int]) -> int:
        """The status that a probe gets; 0 if nobody answers."""
        get = self.container[kind]["httpGet"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{ports[get['port']]}{get['path']}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def _fill(self, folder: Path, files: Mapping[str, str]) -> None:
        version = folder / f"..{self._versions}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_text(self.within(content))
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(Path("..data") / name)
        link = folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(folder / "..data")


class Rendered:
    """The objects for one stream, and the variables that a person would set in an overlay."""

    def __init__(self, manifests: list[Manifest], variables: Mapping[str, str]) -> None:
        self._manifests = manifests
        # The image sets the host.
        self.variables = {"CDCD_MONITORING__HOST": "127.0.0.1", **variables}

    def pods(self, kind: str) -> dict[str, Manifest]:
        """The pods of the objects of a kind, by the name of the object."""
        return {name: spec["template"]["spec"] for name, spec in self._specs(kind).items()}

    def files(self, dsn: str) -> dict[tuple[str, str], Mapping[str, str]]:
        """The ConfigMaps, and the Secret that a person has made."""
        maps = [each for each in self._manifests if each["kind"] == "ConfigMap"]
        return {
            ("Secret", "cdcd"): {"source__dsn": dsn},
            **{("ConfigMap", each["metadata"]["name"]): each["data"] for each in maps},
        }

    def _specs(self, kind: str) -> dict[str, Any]:
        return {each["metadata"]["name"]: each["spec"] for each in self._manifests if each["kind"] == kind}


def by_helm(stream: StreamFixture, port: int, **snapshot: int) -> Rendered:
    """What the chart makes; its settings are those of the values."""
    config = {
        "sink.bootstrap_servers": stream.broker,
        "sink.prefix": stream.prefix,
        "sink.replication_factor": 1,
        "source.slot": stream.slot,
        "source.create": "false",
        "snapshot.mode": "never",
        "monitoring.port": port,
        **{f"snapshot.{name}": value for name, value in snapshot.items()},
    }
    options = ["jobs.slotCreate.enabled=true", "jobs.check.enabled=true", "rollOnConfigChange=false"]
    options += [f"config.{name}={value}" for name, value in config.items()]
    return Rendered(rendered("base.yaml", *(word for option in options for word in ("--set", option))), {})


def by_kustomize(stream: StreamFixture, port: int, **snapshot: int) -> Rendered:
    """What kustomize makes; the rest are variables."""
    manifests = kustomized("base")
    [config] = [each for each in manifests if each["kind"] == "ConfigMap"]
    config["metadata"]["name"] = "cdcd"  # without the hash of the content, as when it is edited in place
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            [volume] = [each for each in manifest["spec"]["template"]["spec"]["volumes"] if "configMap" in each]
            volume["configMap"]["name"] = "cdcd"
    config["data"]["cdcd.toml"] += "[snapshot]\n" + "".join(f"{name} = {value}\n" for name, value in snapshot.items())
    variables = {
        "CDCD_SINK__BOOTSTRAP_SERVERS": stream.broker,
        "CDCD_SINK__PREFIX": stream.prefix,
        "CDCD_SINK__REPLICATION_FACTOR": "1",
        "CDCD_SOURCE__SLOT": stream.slot,
        "CDCD_SNAPSHOT__MODE": "never",
        "CDCD_MONITORING__PORT": str(port),
    }
    return Rendered(manifests, variables)


@pytest.mark.parametrize(
    "render", [pytest.param(by_helm, marks=needs_helm), pytest.param(by_kustomize, marks=needs_kubectl)]
)
def test_the_pods_stream_answer_their_probes_and_take_a_changed_configmap(
    render: Callable[..., Rendered], stream: StreamFixture, tmp_path: Path
) -> None:
    stream.sql(Writer.TABLE)
    stream.publish("cdcd", "t")
    port, log = free_port(), tmp_path / "log"
    made = render(stream, port)
    jobs = made.pods("Job")
    for name in sorted(jobs, key=lambda name: name != "cdcd-slot-create"):  # by their weight
        job = Pod(tmp_path / name, jobs[name], made.files(stream.dsn))
        assert job.run(log, made.variables) == 0, log.read_text()
        if name == "cdcd-slot-create":
            assert stream.confirmed() > 0
    pod = Pod(tmp_path / "pod", made.pods("Deployment")["cdcd"], made.files(stream.dsn))
    with pod.process(log, made.variables) as process:
        eventually(lambda: pod.probe("readinessProbe", {"monitoring": port}) == 200, "ready pod")
        assert pod.probe("livenessProbe", {"monitoring": port}) == 200
        with Writer(stream.dsn) as writer:
            pod.mount(render(stream, port, workers=3).files(stream.dsn))
            eventually(lambda: "the next stream begins with them: snapshot.workers\n" in words(log), "new settings")
            eventually(lambda: words(log).count("going on") == 2, "another stream")
            written = writer.commits
            eventually(lambda: writer.commits > written + 20, "more rows")
            process.send_signal(signal.SIGTERM)
            assert process.wait(pod.spec["terminationGracePeriodSeconds"]) == 0
    with pod.process(log, made.variables):  # the next pod
        eventually(lambda: stream.confirmed() >= stream.written(), "confirmation of all rows")
    stream.check(("public", "t"))


def words(log: Path) -> str:
    """The messages of a log of JSON objects, a line each."""
    whole = log.read_text().rpartition("\n")[0]
    return "".join(f"{json.loads(line)['message']}\n" for line in whole.splitlines())
