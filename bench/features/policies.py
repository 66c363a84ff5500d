"""What users with policies cost sends and pulls: beside ours without them and RocketMQ's 5.5.0.

    python -m bench.features.policies [--pairs 5 --secs 3 --warm-up 15 --entries 1000]

Three brokers are up: ours without users, ours and RocketMQ's with a user whose policy has so many
entries. Every load goes to them in turn, pair by pair, plain and over TLS, signed where there are
users; a broker's CPU counts until what was stored is dispatched. Ratios are medians of those of
the pairs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import checks, processes, scenarios
from bench.access import Access, certificate
from bench.result_files import circumstances, save
from bench.run import TOPIC, build_loadgen, loadgen
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from bench.processes import Broker

USER, PASSWORD = "bench-user", "password-of-bench"
ROOT = Access("bench-root", "password-of-root", is_user=True)
SIGNED = ("--access-key", USER, "--secret-key", PASSWORD)
LOADS = [
    each
    for each in scenarios.ASYNC
    if each.name in {"send 16x1", "send 4x32", "pull 8 consumers, 32 a pull"}
]
TRANSPORTS: dict[str, tuple[str, ...]] = {"plain": (), "TLS": ("--tls", "1")}
WITHOUT, WITH, JAVA = BROKERS = ("without users", "with users", "RocketMQ's with users")
WANTED = {"of ours without": (WITHOUT, 1.15), "of RocketMQ's": (JAVA, 0.5)}
"""What ours with users is compared with, and how much of its CPU it may take at most."""
OTHERS = 100
"""Users who send nothing."""
REQUEST_ENTRIES = 200
"""A broker takes so many in one request whatever their length."""
LOAD_S = 1.1
"""What a run takes beside its load."""
START_S = 15.0


def main() -> int:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--secs", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=15)
    parser.add_argument("--entries", type=int, default=1000)
    parser.add_argument("--no-java", action="store_true", help="compare ours alone")
    options = parser.parse_args()
    build_loadgen()
    kinds = BROKERS[:2] if options.no_java else BROKERS
    runs = len(kinds) * len(TRANSPORTS)
    planned_s = runs * (len(LOADS) * options.pairs * (options.secs + LOAD_S) + options.warm_up)
    print(f"about {(planned_s + START_S) / 60:.0f} min", flush=True)
    about = circumstances("policies", "bench.features.policies")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="policies-")))
        brokers = [stack.enter_context(started(kind, place, options.entries)) for kind in kinds]
        figures = measured(dict(zip(kinds, brokers, strict=True)), options)
    print(save({**about, "figures": figures}))
    return 0


def measured(brokers: dict[str, Broker], options: argparse.Namespace) -> list[dict[str, object]]:
    """Run all loads on all brokers in turn; print a line for each load."""
    lines: list[dict[str, object]] = []
    for name, broker in brokers.items():
        for transport in TRANSPORTS:
            for load in (LOADS[1], LOADS[2]):
                cpu_us(load, broker, transport, name, max(1, options.warm_up // 2))
    for transport in TRANSPORTS:
        for load in LOADS:
            pairs = [
                {
                    name: cpu_us(load, broker, transport, name, options.secs)
                    for name, broker in brokers.items()
                }
                for _ in range(options.pairs)
            ]
            found = ratios(pairs)
            what = {"load": load.name, "transport": transport, "cpu_us": pairs}
            lines.append({**what, "ratios": found})
            medians = (
                f"{name} {statistics.median(pair[name] for pair in pairs):.2f}" for name in brokers
            )
            print(f"{transport}, {load.name}: CPU us a message {', '.join(medians)}", flush=True)
            print(f"    {verdict(found)}", flush=True)
    return lines


def ratios(pairs: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return lowest, median and highest of the ratios of pairs."""
    found: dict[str, list[float]] = {}
    for name, (over, _) in WANTED.items():
        if over in pairs[0]:
            each = sorted(pair[WITH] / pair[over] for pair in pairs)
            found[name] = [
                round(value, 3) for value in (each[0], statistics.median(each), each[-1])
            ]
    return found


def verdict(found: Mapping[str, Sequence[float]]) -> str:
    """Say how a load stands to what is wanted."""
    texts: list[str] = []
    for name, (low, middle, high) in found.items():
        most = WANTED[name][1]
        said = "held" if middle <= most else "missed"
        texts.append(f"{middle} ({low} to {high}) {name}, {most} wanted: {said}")
    return "; ".join(texts)


def cpu_us(load: scenarios.Scenario, broker: Broker, transport: str, name: str, secs: int) -> float:
    """Run a load; return the broker's CPU of a message in microseconds."""
    before = broker.cpu_s()
    command = [*loadgen(load, broker.address, secs), *TRANSPORTS[transport]]
    command += () if name == WITHOUT else SIGNED
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    counted = json.loads(done.stdout or "{}")
    if not counted.get("messages") or (counted["errors"] and name != JAVA):
        raise RuntimeError(f"{name} {load.name}: {done.stdout} {done.stderr}")
    if counted["errors"]:
        # Such as its flow control on a busy machine.
        print(f"{name} {load.name}: {counted['errors']} errors, {done.stderr.strip()[:200]}")
    broker.settle()
    return (broker.cpu_s() - before) * 1e6 / float(counted["messages"])


# --- the brokers ---------------------------------------------------------------------------------


@contextlib.contextmanager
def started(name: str, place: Path, entries: int) -> Generator[Broker]:
    """Start one of the brokers with the topic, and the users if it has any."""
    folder = place / name.replace(" ", "-")
    folder.mkdir()
    if name == WITHOUT:
        broker = processes.start("roquet", "async", folder, certificate(folder))
    else:
        broker = processes.start("java" if name == JAVA else "roquet", "async", folder, (), ROOT)
    with broker:
        if name != WITHOUT:
            checks.refuses_strangers(broker)
            make_users(broker, entries)
        broker.create_topic(TOPIC)
        yield broker


def make_users(broker: Broker, entries: int) -> None:
    """Make the user who sends and pulls, with the policy, and others who do nothing."""
    for name in (USER, *(f"other-{number}" for number in range(OTHERS))):
        body = {"username": name, "password": PASSWORD, "userType": "Normal"}
        _ask(broker, RequestCode.AUTH_CREATE_USER, {"username": name}, body)
    subject = f"User:{USER}"
    made = policy(entries)
    for begin in range(0, len(made), REQUEST_ENTRIES):
        policies = [{"policyType": "Custom", "entries": made[begin : begin + REQUEST_ENTRIES]}]
        code = RequestCode.AUTH_UPDATE_ACL if begin else RequestCode.AUTH_CREATE_ACL
        _ask(broker, code, {"subject": subject}, {"subject": subject, "policies": policies})
    # RocketMQ's caches of users and policies are filled by then.
    time.sleep(1)


def policy(entries: int) -> list[dict[str, object]]:
    """Return entries of each kind of match, a part of them for some addresses only.

    The topic of the loads is in a literal one, their group in a prefix, both for everybody.
    """
    made = [entry(f"Topic:{TOPIC}", "Pub"), entry("Group:loadgen*", "Sub")]
    for number in range(entries - len(made)):
        kind = "Group" if number % 2 else "Topic"
        # Prefixes of ten lengths.
        end = "x" * (number % 10) + "*" if number % 5 == 0 else ""
        sources = ("10.0.0.0/8", "192.168.1.7") if number % 3 == 0 else ()
        made.append(entry(f"{kind}:tenant-{number:04}{end}", "Sub", sources))
    return made


def entry(resource: str, action: str, sources: Sequence[str] = ()) -> dict[str, object]:
    """Return an entry that allows an action, and to read as well."""
    actions = sorted({action, "Sub"})
    allowed: dict[str, object] = {"resource": resource, "actions": actions, "decision": "Allow"}
    return allowed | ({"sourceIps": list(sources)} if sources else {})


def _ask(broker: Broker, code: int, ext: dict[str, str], body: Mapping[str, object]) -> None:
    with broker.connect() as connection:
        answer = connection.call(Command(code, ext=ext, body=json.dumps(body).encode()), 30)
    if answer.code != 0:
        raise RuntimeError(f"{broker.kind}: {code} {answer.code} {answer.remark}")


if __name__ == "__main__":
    sys.exit(main())
