"""Our proxy beside RocketMQ's 5.5.0 in one run: CPU a message, rates, memory, start.

    python -m bench.features.proxies [--secs 4 --warm-up 8 --pairs 3 --only local,cluster]

`cluster` is a proxy before our broker, and its CPU is that of the proxy's process; `local` is a
broker that serves gRPC itself, and its CPU is that of the whole process. Loads go to both makes in
turn, pair by pair, from the same load generator (`--wire grpc`; remoting through the proxy's other
port). What is idle is weighed first, and 5,000 telemetry streams last.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench import weights
from bench.result_files import circumstances, save
from bench.run import LOADGEN, build_loadgen
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.bodies.groups import encode_group
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.admin import CreateTopicRequest
from roquet.remoting.blocking import BlockingConnection
from roquet.testing import java

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KINDS = ("roquet", "java")
TOPIC = "BenchProxies"
GROUP = "loadgen"
BROKER = "bench-proxies"
START_LIMIT_S = 180.0
IDLE_S = 3.0
STREAMS = 5000
PROXY_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"
SEND = ("send", "--wire", "grpc")
RECEIVE = "receive 32 and ack"
LOADS: dict[str, tuple[str, ...]] = {
    "send 16x1": (*SEND, "--conns", "16"),
    "send 4x32": (*SEND, "--conns", "4", "--depth", "32"),
    RECEIVE: ("receive", "--wire", "grpc", "--conns", "4", "--broker", BROKER),
}
REMOTING = {"remoting send 16x1": ("send", "--conns", "16", "--bname", BROKER)}


@dataclasses.dataclass(slots=True)
class Make:
    """One make's processes, and where they listen."""

    kind: str
    folder: Path
    processes: list[subprocess.Popen[bytes]]
    grpc: int
    remoting: int = 0
    start_s: float = 0.0

    @property
    def pid(self) -> int:
        """The process that is weighed."""
        return self.processes[-1].pid


def main() -> None:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secs", type=int, default=4)
    parser.add_argument("--warm-up", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", default="local,cluster")
    options = parser.parse_args()
    build_loadgen()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    about = circumstances("proxies", "bench.features.proxies")
    figures = [run(mode, options) for mode in options.only.split(",")]
    print(save({**about, "figures": figures}))


def run(mode: str, options: argparse.Namespace) -> dict[str, object]:
    """Measure one mode with both makes side by side."""
    loads = LOADS | (REMOTING if mode == "cluster" else {})
    lines: dict[str, object] = {"mode": mode}
    with contextlib.ExitStack() as stack:
        makes: list[Make] = []
        for kind in KINDS:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="proxies-")))
            makes.append(stack.enter_context(started(kind, mode, folder)))
        time.sleep(IDLE_S)
        for make in makes:
            idle = weights.memory_mib(make.pid)
            lines[f"{make.kind} idle"] = {"start_s": make.start_s, **idle}
            print(f"{mode} {make.kind}: start {make.start_s:.2f} s, idle {idle}", flush=True)
        for make in makes:
            # A new group begins behind the last message: it is known before there is one.
            loaded(make, LOADS[RECEIVE], 1)
        for name, load in loads.items():
            for make in makes:
                loaded(make, load, options.warm_up)
            pairs = [
                [loaded(make, load, options.secs) for make in makes] for _ in range(options.pairs)
            ]
            for number, make in enumerate(makes):
                figures = [pair[number] for pair in pairs]
                lines[f"{make.kind} {name}"] = figures
                print(f"{mode} {make.kind} {name}: {shown(figures)}", flush=True)
        for make in makes:
            lines[f"{make.kind} streams"] = streams(make)
            print(f"{mode} {make.kind}: {lines[f'{make.kind} streams']}", flush=True)
    return lines


def shown(figures: Sequence[dict[str, float]]) -> str:
    """Return medians and ranges of the figures that decide."""
    texts: list[str] = []
    for name in ("cpu_us", "per_second", "p99_us"):
        values = sorted(each[name] for each in figures)
        texts.append(
            f"{name} {statistics.median(values):.0f} ({values[0]:.0f} to {values[-1]:.0f})"
        )
    return ", ".join(texts)


def loaded(make: Make, load: Sequence[str], secs: int) -> dict[str, float]:
    """Run a load; return what it counted and the CPU of a message in microseconds."""
    port = make.remoting if "--bname" in load else make.grpc
    command = [str(LOADGEN), load[0], f"127.0.0.1:{port}", TOPIC, "--secs", str(secs), *load[1:]]
    before = weights.cpu_s(make.pid)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    used_s = weights.cpu_s(make.pid) - before
    if not done.stdout:
        raise RuntimeError(f"{make.kind} {load}: {done.stderr}")
    if done.stderr:
        print(f"{make.kind}: {done.stderr.strip()[:300]}", file=sys.stderr)
    counted = json.loads(done.stdout)
    figures = {name: float(value) for name, value in counted.items() if name != "mode"}
    return figures | {"cpu_us": used_s * 1e6 / max(1.0, figures["messages"])}


def streams(make: Make) -> dict[str, float]:
    """Weigh telemetry streams that say nothing."""
    before = weights.memory_mib(make.pid)
    command = [str(LOADGEN), "idle", f"127.0.0.1:{make.grpc}", TOPIC, "--wire", "grpc"]
    command += ["--streams", str(STREAMS), "--secs", "40"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as held:
        time.sleep(35)
        after = weights.memory_mib(make.pid)
        assert held.stdout is not None
        counted = json.loads(held.stdout.read())
    opened = counted["messages"]
    grown_kib = (after["private"] - before["private"]) * 1024
    return {"streams": opened, "kib_each": round(grown_kib / max(1, opened), 1)}


# --- processes -----------------------------------------------------------------------------------


@contextlib.contextmanager
def started(kind: str, mode: str, folder: Path) -> Iterator[Make]:
    """Start a make's proxy with what is behind it, and the topic."""
    with Starting(folder) as all_of_it:
        ports = iter([java.free_port(random.Random()) for _ in range(4)])
        namesrv, broker, grpc, remoting = ports
        (folder / "namesrv.conf").write_text(
            f"listenPort={namesrv}\nkvConfigPath={folder}/kvConfig.json\n"
        )
        config = broker_config(folder, namesrv, broker)
        behind = kind if mode == "local" else "roquet"
        all_of_it.start(*roquet_or_java(behind, "namesrv", folder), port=namesrv)
        settings = {
            "rocketMQClusterName": "bench",
            "proxyMode": mode.upper(),
            "namesrvAddr": f"127.0.0.1:{namesrv}",
            "grpcServerPort": grpc,
            "remotingListenPort": remoting,
            "remotingAccessAddr": "127.0.0.1",
            "localServeAddr": "127.0.0.1",
        }
        (folder / "rmq-proxy.json").write_text(json.dumps(settings))
        flags = ["-pc", str(folder / "rmq-proxy.json")]
        roquet = [sys.executable, "-m", "roquet"]
        if mode == "cluster":
            all_of_it.start(*roquet, "broker", "-c", str(config), port=broker)
            prepare(broker)
            ours = [*roquet, "proxy", *flags, "--grpc-port", str(grpc)]
        else:
            ours = [*roquet, "broker", "-c", str(config), "--proxy", "--grpc-port", str(grpc)]
            flags += ["-bc", str(config)]
        theirs = java_of(PROXY_MAIN, "-Xmx2g", *flags)
        began = time.monotonic()
        all_of_it.start(*(ours if kind == "roquet" else theirs), port=grpc)
        start_s = time.monotonic() - began
        if mode == "local":
            prepare(broker)
        yield Make(kind, folder, all_of_it.processes, grpc, remoting, start_s)


def broker_config(folder: Path, namesrv: int, port: int) -> Path:
    """Write the settings of a broker, which are the defaults but for its place."""
    lines = [
        f"brokerName={BROKER}",
        "brokerClusterName=bench",
        "brokerIP1=127.0.0.1",
        f"listenPort={port}",
        f"namesrvAddr=127.0.0.1:{namesrv}",
        f"storePathRootDir={folder}/store",
        f"storePathCommitLog={folder}/store/commitlog",
    ]
    file = folder / "broker.conf"
    file.write_text("\n".join(lines) + "\n")
    return file


def java_of(main_class: str, heap: str, *arguments: str) -> list[str]:
    """Return the command of a program of RocketMQ."""
    return ["java", heap, "-cp", f"{java.fetch_jars()}/*", main_class, *arguments]


def roquet_or_java(kind: str, role: str, folder: Path) -> list[str]:
    """Return the command of a name server."""
    arguments = ["-c", str(folder / f"{role}.conf")]
    if kind == "roquet":
        return [sys.executable, "-m", "roquet", role, *arguments]
    return java_of("org.apache.rocketmq.namesrv.NamesrvStartup", "-Xmx256m", *arguments)


def prepare(port: int) -> None:
    """Make the topic and the group, which Java's proxy wants before it takes a consumer's settings.

    Tries until the broker is ready.
    """
    header = CreateTopicRequest(
        topic=TOPIC,
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )
    group = encode_group(SubscriptionGroupConfig(name=GROUP))
    asked(port, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=header.encode()))
    asked(port, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group))


def asked(port: int, command: Command) -> None:
    """Ask a broker until it says yes."""
    end = time.monotonic() + START_LIMIT_S
    while True:
        with contextlib.suppress(OSError), BlockingConnection(f"127.0.0.1:{port}") as connection:
            if connection.call(command, timeout=10).code == 0:
                return
        if time.monotonic() > end:
            raise TimeoutError(f"the broker did not answer {command.code} with a success")
        time.sleep(0.2)


class Starting:
    """Processes of one make; ended in reverse order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, port: int) -> None:
        """Start a process and wait until its port takes connections."""
        log = (self.folder / f"{len(self.processes)}.log").open("ab")
        home = {"ROCKETMQ_HOME": str(self.folder), "HOME": str(self.folder)}
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **home})
        self.processes.append(process)
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.01)
        raise RuntimeError(f"{command} did not start:\n{Path(log.name).read_text()[-2000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            if process.poll() is None:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
