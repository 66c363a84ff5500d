"""Run the scenarios on the brokers in turn and keep the figures.

`python -m bench.run [--quick | --full] [--only TEXT,TEXT] [--kinds roquet,java] [--no-read-back]`
says how long it will take before it begins. `--pairs`, `--secs` and `--warm-up` change a plan. The
kind `loop` is ours with `ioThreads=0`.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench import checks, processes, recovery, report, result_files, scenarios
from bench.peers import kafka, nats
from bench.peers.server import Peer
from bench.plan import FULL, QUICK, RECOVERY_S, START_S, Plan, Watch, minutes
from bench.scenarios import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.access import Access
    from bench.processes import Broker

HERE = Path(__file__).parent
LOADGEN = HERE / "loadgen" / "target" / "release" / "loadgen"
TOPIC = "BenchTopic"
TOPICS_MAX = 64
QUEUES = 4
FILL = Scenario(
    "fill",
    "send",
    {"conns": 4, "depth": 32, "size": 1024, "tags": 10},
    topic=scenarios.FILLED,
)
SETTLE_S = 1.0
"""What servers that cannot be asked are given to finish what they do behind a load."""
OPEN_RATE = 20_000
"""Rate to take the half of when the scenario itself was left out."""

PEERS = ("nats", "kafka")
"""What else is measured where a load can be compared."""

Figures = dict[str, float]


def build_loadgen() -> None:
    """Build the load generator where it is not up to date. Raises CalledProcessError."""
    manifest = HERE / "loadgen/Cargo.toml"
    subprocess.run(["cargo", "build", "-q", "--release", "--manifest-path", manifest], check=True)


def loadgen(
    scenario: Scenario, address: str, secs: float, access: Access | None = None, *, kind: str = ""
) -> list[str]:
    """Return the load generator's command line for a scenario; `kind` is the broker's."""
    topic = TOPIC + scenario.topic
    command = [str(LOADGEN), scenario.mode, address, topic, "--secs", str(int(secs))]
    for name, value in {"queues": QUEUES, **scenario.options}.items():
        command += [f"--{name}", str(value)]
    if scenario.mode == "pop":
        command += ["--broker", f"bench-{kind}"]
    if kind in PEERS:
        command += ["--wire", kind]
    return command + (access.load_options() if access else [])


def topics_of(scenario: Scenario) -> list[str]:
    """Return the topics that a load writes to."""
    many = int(scenario.options.get("topics", 1))
    return [TOPIC] if many == 1 else [f"{TOPIC}-{index}" for index in range(many)]


def measure_peer(scenario: Scenario, peer: Peer, secs: float) -> Figures:
    """Run one load on a server of another protocol."""
    before = peer.cpu_s()
    load = loadgen(scenario, peer.address, secs, kind=peer.kind)
    figures = _done(subprocess.run(load, capture_output=True, text=True, check=False), peer.kind)
    time.sleep(SETTLE_S)
    figures["cpu_us"] = (peer.cpu_s() - before) * 1e6 / max(1.0, figures["messages"])
    return figures


def _done(done: subprocess.CompletedProcess[str], what: str) -> Figures:
    """Return what a load generator counted. Raises RuntimeError when it did not get so far."""
    if not done.stdout:
        raise RuntimeError(f"{what}: {done.stderr}")
    if done.stderr:
        print(f"{what}: {done.stderr.strip()[:300]}", file=sys.stderr)
    counted = json.loads(done.stdout).items()
    return {name: value for name, value in counted if isinstance(value, int | float)}


def measure(scenario: Scenario, broker: Broker, secs: float, *, read_back: bool = False) -> Figures:
    """Run one load on one broker; CPU counts until everything stored is dispatched.

    With `read_back` all that was acknowledged is read and checked afterwards.
    """
    delayed = "delay" in scenario.options
    checked = read_back and scenario.mode in {"send", "transactions"}
    begin = checks.ends(broker, topics_of(scenario), QUEUES) if checked or delayed else {}
    lag_before = broker.loop_lag()
    beside = None
    if scenario.send_rate:
        sender = Scenario("", "send", {"conns": 2, "rate": scenario.send_rate, "size": 1024})
        load = loadgen(sender, broker.address, secs + 2, broker.access)
        beside = subprocess.Popen(load, stdout=subprocess.PIPE)
        time.sleep(1)
    before = broker.cpu_s()
    load = loadgen(scenario, broker.address, secs, broker.access, kind=broker.kind)
    done = subprocess.run(load, capture_output=True, text=True, check=False)
    figures = _done(done, f"{broker.kind} {scenario.name}")
    if delayed:
        checks.wait_for(broker, begin, int(figures["messages"]))
    broker.settle()
    cpu_us = (broker.cpu_s() - before) * 1e6
    if beside is not None:
        beside.wait()
    figures["cpu_us"] = cpu_us / max(1.0, figures["messages"])
    figures |= report.lag(lag_before, broker.loop_lag())
    if checked:
        figures["read_back"] = checks.read_back(
            broker, begin, checks.ends(broker, topics_of(scenario), QUEUES)
        )
        if figures["read_back"] < figures["messages"]:
            raise RuntimeError(f"{scenario.name} on {broker.kind}: messages are lost: {figures}")
    return figures


def prepare(broker: Broker) -> None:
    """Make the topics, and messages for the pulls to read."""
    for index in range(TOPICS_MAX):
        broker.create_topic(f"{TOPIC}-{index}", QUEUES)
    for name in (TOPIC, TOPIC + scenarios.FILLED, TOPIC + scenarios.ECHOED):
        broker.create_topic(name, QUEUES)


def run_group(
    group: Group, plan: Plan, watch: Watch, arguments: argparse.Namespace
) -> list[dict[str, object]]:
    """Run a list of scenarios with its brokers up, alternating between them."""
    rows: list[dict[str, object]] = []
    folder = Path(tempfile.mkdtemp(prefix="roquet-bench-", dir=arguments.folder))
    brokers: list[Broker | Peer] = []
    try:
        # One by one: those that run are stopped below when the next cannot start.
        for kind in group.kinds:
            if kind in PEERS:
                brokers.append(_start_peer(kind, folder / kind))
            else:
                extra = group.config.get(kind, ())
                started = processes.start(kind, group.flush, folder / kind, extra, group.access)
                brokers.append(started)
                _prepare(started, group, plan)
            _warm_up(brokers[-1], plan.warm_up)
            watch.done(f"{group.name}: {kind} is warm", plan.warm_up + START_S)
        rows += _rows(group, plan, watch, brokers, read_back=not arguments.no_read_back)
        if group.flush == "sync":
            rows.append(recovery.disk_alone(folder))
        memory = {broker.kind: broker.memory_mib() for broker in brokers}
        rows.append({"name": f"memory after {group.name} load, MiB", "memory": memory})
    finally:
        for broker in brokers:
            broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def _prepare(broker: Broker, group: Group, plan: Plan) -> None:
    if group.access:
        checks.refuses_strangers(broker)
    prepare(broker)
    if any(each.topic for each in group.scenarios):
        measure(FILL, broker, plan.secs)


def _start_peer(kind: str, place: Path) -> Peer:
    if kind == "nats":
        return nats.start(place, TOPIC, LOADGEN)
    return kafka.start(place, TOPIC, QUEUES)


def _rows(
    group: Group, plan: Plan, watch: Watch, brokers: list[Broker | Peer], *, read_back: bool
) -> list[dict[str, object]]:
    reached: dict[str, float] = {}
    runs: dict[str, dict[str, list[Figures]]] = {}
    rows: list[dict[str, object]] = []
    for planned, is_last in group.rounds(plan.pairs):
        scenario = at_half(planned, reached)
        mine = runs.setdefault(scenario.name, {kind: [] for kind in group.kinds})
        secs = plan.shape_secs if scenario.is_shape else plan.secs
        for broker in brokers:
            figures = _measure(scenario, broker, secs, read_back=read_back)
            if scenario.is_shape and not isinstance(broker, Peer):
                beside = measure(scenarios.REFERENCE, broker, secs)
                figures["to_reference"] = figures["cpu_us"] / beside["cpu_us"]
            mine[broker.kind].append(figures)
            watch.done(
                f"{scenario.name}, {broker.kind}, {mine[broker.kind][-1]['cpu_us']:.1f} µs",
                plan.run_s(scenario, read_back=read_back),
            )
        if is_last:
            slower = mine.get("java") or next(iter(mine.values()))
            reached[planned.name] = statistics.median(each["per_second"] for each in slower)
            rows.append(report.row(scenario, mine))
    shapes = [row for row in rows if str(row["name"]).startswith("shape ")]
    if len(shapes) > 1:
        rows.append(report.spread(shapes))
    return rows


def at_half(scenario: Scenario, reached: dict[str, float]) -> Scenario:
    """Return an open-loop scenario with its rate: half of what Java reached without one."""
    if not scenario.half_of:
        return scenario
    rate = int(reached.get(scenario.half_of, OPEN_RATE) / 2)
    return dataclasses.replace(
        scenario, name=f"{scenario.name}, {rate:,}/s", options={**scenario.options, "rate": rate}
    )


def _measure(
    scenario: Scenario, broker: Broker | Peer, secs: float, *, read_back: bool = False
) -> Figures:
    if isinstance(broker, Peer):
        return measure_peer(scenario, broker, secs)
    return measure(scenario, broker, secs, read_back=read_back)


def _warm_up(broker: Broker | Peer, secs: float) -> None:
    if secs <= 0:
        return
    load = Scenario("warm-up", "send", {"conns": 4, "depth": 32, "size": 1024})
    _measure(load, broker, secs / 2)
    _measure(Scenario("warm-up", "pull", {"conns": 4, "batch": 32}), broker, secs / 2)


def start_times(arguments: argparse.Namespace, count: int) -> dict[str, object]:
    """Measure exec to first SEND_OK (default file sizes, existing topic) and idle memory."""
    found: dict[str, list[float]] = {}
    idle: dict[str, list[float]] = {}
    for kind in _rocketmq(arguments):
        folder = Path(tempfile.mkdtemp(prefix="roquet-start-", dir=arguments.folder))
        with processes.start(kind, "async", folder) as broker:
            broker.create_topic(TOPIC)
        rounds = count if kind == "roquet" else min(count, 3)
        for _ in range(rounds):
            with processes.start(kind, "async", folder) as broker:
                processes.wait_for_send(broker, TOPIC)
                found.setdefault(kind, []).append(time.monotonic() - broker.exec_s)
                time.sleep(1)
                idle.setdefault(kind, []).append(broker.memory_mib()["rss"])
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "name": "start to first SEND_OK, s (the name server runs)",
        "start_s": {kind: statistics.median(values) for kind, values in found.items()},
        "idle_rss_mib": {kind: statistics.median(values) for kind, values in idle.items()},
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Scenarios that share their brokers."""

    name: str
    flush: str
    kinds: list[str]
    scenarios: list[Scenario]
    config: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """Lines of the configuration that differ from the defaults, by kind."""
    access: Access | None = None
    """The account of all clients, who come over TLS then."""

    def rounds(self, pairs: int) -> Iterator[tuple[Scenario, bool]]:
        """Give out what to run, and whether it is the last time.

        Shapes are compared with each other, so they take turns, each beside the reference.
        """
        if self.name == "shapes":
            for number in range(pairs):
                yield from ((each, number == pairs - 1) for each in self.scenarios)
            return
        for each in self.scenarios:
            yield from ((each, number == pairs - 1) for number in range(pairs))


def _wanted(name: str, arguments: argparse.Namespace) -> bool:
    return any(text in name for text in arguments.only.split(","))


def _rocketmq(arguments: argparse.Namespace) -> list[str]:
    """Return which of the brokers to measure speak RocketMQ's protocol."""
    return [kind for kind in arguments.kinds.split(",") if kind not in PEERS]


def _groups(arguments: argparse.Namespace) -> list[Group]:
    kinds = _rocketmq(arguments)
    every: list[str] = arguments.kinds.split(",")
    ours = [kind for kind in kinds if kind == "roquet"]
    shapes = scenarios.frame_shapes(arguments.seed)
    groups = [
        Group("async", "async", kinds, scenarios.ASYNC),
        Group("shapes", "async", ours, shapes),
        Group("sync", "sync", kinds, scenarios.SYNC),
        Group("services", "async", kinds, scenarios.SERVICES, scenarios.SERVICES_CONFIG),
        Group("pop", "async", kinds, scenarios.POP, scenarios.POP_CONFIG),
        Group("pop buffer", "async", kinds, scenarios.POP_BUFFER, scenarios.POP_BUFFER_CONFIG),
        Group("processors", "async", kinds, scenarios.SLOW, scenarios.SLOW_CONFIG),
        Group("secure", "async", kinds, scenarios.SECURE, access=scenarios.ACCESS),
        Group(
            "secure pop",
            "async",
            kinds,
            scenarios.SECURE_POP,
            scenarios.POP_CONFIG,
            access=scenarios.ACCESS,
        ),
        Group("peers", "async", every, scenarios.PEERS),
    ]
    chosen = [
        dataclasses.replace(
            group, scenarios=[each for each in group.scenarios if _wanted(each.name, arguments)]
        )
        for group in groups
    ]
    return [group for group in chosen if group.scenarios and group.kinds]


def _plan(arguments: argparse.Namespace) -> Plan:
    chosen = QUICK if arguments.quick else FULL
    given = {
        name: value
        for name in ("pairs", "secs", "warm_up")
        if (value := getattr(arguments, name)) is not None
    }
    if "secs" in given:
        given["shape_secs"] = given["secs"]
    return dataclasses.replace(chosen, **given)


def main() -> int:
    """Measure, print the table, write bench/results/brokers-*.json."""
    parser = argparse.ArgumentParser(prog="bench.run", description=__doc__)
    plans = parser.add_mutually_exclusive_group()
    plans.add_argument("--quick", action="store_true", help="one short pair of everything")
    plans.add_argument("--full", action="store_true", help="five pairs of everything (default)")
    parser.add_argument("--pairs", type=int, default=None)
    parser.add_argument("--secs", type=float, default=None)
    parser.add_argument("--warm-up", type=float, default=None, dest="warm_up")
    parser.add_argument("--only", default="", help="scenarios whose name contains this text")
    parser.add_argument("--kinds", default="roquet,java,nats,kafka")
    parser.add_argument("--folder", default=None, help="where the stores are made")
    parser.add_argument("--seed", type=int, default=1, help="draws the frame shapes")
    parser.add_argument("--no-read-back", action="store_true", help="check no run's messages")
    arguments = parser.parse_args()
    build_loadgen()
    plan = _plan(arguments)
    groups = _groups(arguments)
    read_back = not arguments.no_read_back
    extra = {"start": (plan.starts + 3) * START_S, "recovery": 4 * RECOVERY_S}
    extra = {name: secs for name, secs in extra.items() if _wanted(name, arguments)}
    total = sum(
        plan.group_s(group.scenarios, len(group.kinds), read_back=read_back) for group in groups
    )
    total += sum(extra.values())
    print(f"{plan}: about {minutes(total)}", flush=True)
    watch = Watch(total, functools.partial(print, flush=True))
    about = result_files.circumstances("brokers", "bench.run")
    rows: list[dict[str, object]] = []
    for group in groups:
        rows += run_group(group, plan, watch, arguments)
    if "start" in extra:
        rows.append(start_times(arguments, plan.starts))
        watch.done("start", extra["start"])
    if "recovery" in extra:
        load = Scenario("fill", "send", {"conns": 4, "depth": 32, "size": 1024, "keys": 1})
        fill = functools.partial(measure, load, secs=plan.secs)
        rows += recovery.rows(_rocketmq(arguments), arguments.folder, fill)
        watch.done("recovery", extra["recovery"])
    result = {**about, "seed": arguments.seed, "rows": rows}
    target = result_files.save(result)
    report.show(result, Console())
    print(f"written to {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
