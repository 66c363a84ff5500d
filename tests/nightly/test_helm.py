"""The Helm chart: rendered, its values checked, its command lines and hooks run as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from cli_harness import environment, roquet
from roquet.testing.cluster import TINY
from roquet.testing.java import cache_folder

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "roquet"
HELM = "v3.17.3"
KUBERNETES = ("--kube-version", "1.30.0")
READY_WITHIN_S = 60.0
NAME_SERVER, MASTER, SLAVE = "127.58.0.10", "127.58.0.11", "127.58.0.12"
Object = dict[str, Any]
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def helm() -> Path:
    """The tool, built once of the module that Go's checksum database knows."""
    kept = cache_folder() / f"helm-{HELM}" / "helm"
    if not kept.exists():
        folder = kept.parent.with_name(f"{kept.parent.name}.{os.getpid()}")
        folder.mkdir(parents=True)
        env = {**os.environ, "GOBIN": str(folder)}
        module = f"helm.sh/helm/v3/cmd/helm@{HELM}"
        subprocess.run(["go", "install", module], check=True, env=env, timeout=800)
        folder.rename(kept.parent)
    return kept


def run_helm(helm: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *words], check=False, capture_output=True, text=True, timeout=60)


def rendered(helm: Path, *settings: str) -> dict[tuple[str, str], Object]:
    done = run_helm(helm, "template", "mq", str(CHART), *KUBERNETES, *settings)
    assert done.returncode == 0, done.stderr
    found = [cast("Object", it) for it in yaml.safe_load_all(done.stdout) if it]
    return {(it["kind"], it["metadata"]["name"]): it for it in found}


def pod(objects: dict[tuple[str, str], Object], name: str, kind: str = "StatefulSet") -> Object:
    return cast("Object", objects[kind, name]["spec"]["template"]["spec"])


def test_chart_is_sound_and_wrong_values_are_refused(helm: Path) -> None:
    assert run_helm(helm, "lint", "--strict", str(CHART)).returncode == 0
    for setting, said in (
        ("brokers.replicas=0", "replicas"),
        ("brokers.flush=SOMETIMES", "flush"),
        ("brokers.storage=lots", "storage"),
        ("brokers.settings.autoCreateTopicEnable=true", "autoCreateTopicEnable"),
        ("broker.replicas=3", "broker"),
    ):
        done = run_helm(helm, "template", "mq", str(CHART), *KUBERNETES, "--set", setting)
        assert (done.returncode, said in done.stderr) == (1, True), (setting, done.stderr)


def test_pods_are_without_rights_limited_and_probed(helm: Path) -> None:
    objects = rendered(helm)
    sets = ("mq-namesrv", "mq-broker", "mq-broker-slave")
    pods = [pod(objects, name) for name in sets] + [pod(objects, "mq-console", "Deployment")]
    for it in pods:
        assert it["automountServiceAccountToken"] is False
        assert it["securityContext"]["runAsNonRoot"] is True
        (container,) = it["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert container["livenessProbe"]
    for name in sets:
        (container,) = pod(objects, name)["containers"]
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert ("PodDisruptionBudget", name) in objects
        named = objects["Service", name]["spec"]["selector"].items()
        labels = objects["StatefulSet", name]["spec"]["template"]["metadata"]["labels"].items()
        assert named <= labels
    master = pod(objects, "mq-broker")
    assert master["terminationGracePeriodSeconds"] > 40
    (container,) = master["containers"]
    assert container["startupProbe"]["failureThreshold"] * 5 == 600


def test_values_reach_what_is_rendered(helm: Path) -> None:
    few = rendered(
        helm, "--set", "brokers.slaves=false,console.enabled=false,nameServers.replicas=1"
    )
    assert ("StatefulSet", "mq-broker-slave") not in few
    assert ("Deployment", "mq-console") not in few
    (container,) = pod(few, "mq-broker")["containers"]
    assert "ASYNC_MASTER" in container["command"][2]
    more = rendered(helm, "--set-string", "brokers.settings.autoCreateTopicEnable=false")
    text = more["ConfigMap", "mq-broker"]["data"]["broker.conf"]
    assert "autoCreateTopicEnable=false" in text.splitlines()
    assert "mq-namesrv-0.mq-namesrv:9876;mq-namesrv-1.mq-namesrv:9876" in text


def moved_to(home: Path, address: str, text: str) -> str:
    """Return a text of the chart as it is on this machine."""
    text = text.replace("mq-namesrv-0.mq-namesrv", NAME_SERVER).replace("0.0.0.0", address)
    return text.replace("/var/lib/roquet", str(home))


class Container:
    """One of the chart's containers as a process on this machine, at an address of its own."""

    def __init__(self, home: Path, container: Object, name: str, address: str) -> None:
        self.home, self.address, self.container = home, address, container
        home.mkdir()
        self.env = {**environment(home), "POD_NAME": name, "POD_IP": address}
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env['PATH']}"
        for it in container.get("env", ()):
            if "value" in it:
                self.env[it["name"]] = self.moved(it["value"])
        words = container.get("command") or ["roquet", *container["args"]]
        with (home / "errors").open("wb") as errors:
            self.child = subprocess.Popen(
                [self.moved(word) for word in words],
                env=self.env,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def moved(self, text: str) -> str:
        return moved_to(self.home, self.address, text)

    def probe(self, name: str) -> int:
        """Return the status that a probe gets, 0 for none."""
        found = self.container[name]["httpGet"]
        (port,) = [
            it["containerPort"] for it in self.container["ports"] if it["name"] == found["port"]
        ]
        try:
            url = f"http://{self.address}:{port}{found['path']}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait_until_ready(self) -> None:
        end_s = time.monotonic() + READY_WITHIN_S
        while self.probe("readinessProbe") != 200:
            assert self.child.poll() is None, (self.home / "errors").read_text()
            assert time.monotonic() < end_s, (self.home / "errors").read_text()
            time.sleep(0.1)

    def stop(self) -> int:
        self.child.terminate()
        return self.child.wait(60)


def test_containers_of_the_chart_take_a_message_and_drain(helm: Path, tmp_path: Path) -> None:
    objects = rendered(
        helm, "--set", "nameServers.replicas=1,brokers.replicas=1,brokers.drainSeconds=0"
    )
    own = objects["ConfigMap", "mq-broker"]["data"]["broker.conf"]
    tiny = "".join(f"{key}={value}\n" for key, value in TINY.items())
    running: list[Container] = []

    def start(name: str, address: str) -> Container:
        (container,) = pod(objects, name)["containers"]
        file = tmp_path / f"{name}.conf"
        text = json.dumps(container).replace("/etc/roquet/broker.conf", str(file))
        moved = moved_to(tmp_path / name, address, own)
        file.write_text(tiny + moved)
        started = Container(tmp_path / name, json.loads(text), f"{name}-0", address)
        running.append(started)
        started.wait_until_ready()
        return started

    try:
        start("mq-namesrv", NAME_SERVER)
        master = start("mq-broker", MASTER)
        start("mq-broker-slave", SLAVE)
        at = f"{NAME_SERVER}:9876"
        assert roquet(tmp_path, "pub", "hello", "first", "-n", at).returncode == 0
        assert "first" in roquet(tmp_path, "cat", "hello", "-e", "-n", at).stdout
        (pair,) = [
            json.loads(it)
            for it in roquet(tmp_path, "ha", "status", "-o", "json", "-n", at).stdout.splitlines()
        ]
        assert (pair["broker"], pair["state"]) == ("broker-0", "in sync")
        assert [master.probe(it) for it in ("startupProbe", "livenessProbe")] == [200, 200]
        hook = master.container["lifecycle"]["preStop"]["exec"]["command"]
        subprocess.run(hook, check=True, env=master.env, timeout=60)
        (row, *_) = [
            json.loads(it)
            for it in roquet(tmp_path, "broker", "ls", "-o", "json", "-n", at).stdout.splitlines()
        ]
        assert "drained" in row["state"]
    finally:
        codes = [it.stop() for it in reversed(running)]
    assert codes == [0, 0, 0]
