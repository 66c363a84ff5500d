"""The real RocketMQ for tests: its jars through Maven, its processes, and one driver JVM.

`python -m roquet.testing.java_jars` brings the jars; a test that needs them fails without.
Heaps and files are small, and the compiler stops at its first level: tests are short.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import json
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from roquet.base.errors import RoquetError
from roquet.testing.java_classes import archive_flags, compiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION = "5.5.0"
OLD_VERSION = "4.9.7"
"""The last 4.x of which all parts are published: for what 5.x has dropped."""
CACHE_VARIABLE = "ROQUET_JAVA_HOME_CACHE"
REPOSITORY = Path(__file__).resolve().parents[3]
POM = REPOSITORY / "tests" / "interop" / "pom.xml"
PROGRAMS = REPOSITORY / "tests" / "interop" / "java"
_GIVEN: collections.deque[int] = collections.deque(maxlen=100)
JVM_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")
SPARING = {
    "transactionMetricFlushInterval": "250",
    "transactionOpBatchInterval": str(2**31 - 1),
    "transactionOpMsgMaxSize": "1",
}
"""Settings under which two services of the Java broker wait instead of keeping a core busy.

`TransactionMetricsFlushService` waits only once its interval (10 s) after the start is over.
`TransactionalOpBatchService` does not wait any more once the last end of a transaction is older
than its interval (3 s). With these it is woken for each end, writes it, and waits otherwise."""


class JavaError(RoquetError):
    """The Java side is missing, did not start, or answered with an exception."""


def cache_folder() -> Path:
    """Return where the jars are kept: below $ROQUET_JAVA_HOME_CACHE or ~/.cache/roquet-java."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "roquet-java"


def fetch_jars(version: str = VERSION) -> Path:
    """Return the folder of the jars, after downloading them when one is missing.

    100 MB for 5.5.0, 40 MB for 4.9.7.
    """
    folder = cache_folder() / ("lib" if version == VERSION else f"lib-{version}")
    parts = ["broker", "namesrv", "tools", *(["container"] if version == VERSION else [])]
    needed = [f"rocketmq-{part}-{version}.jar" for part in parts]
    if all((folder / name).exists() for name in needed):
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise JavaError(f"the RocketMQ jars are not in {folder}, and there is no mvn to fetch them")
    folder.mkdir(parents=True, exist_ok=True)
    pom = POM if version == VERSION else POM.with_name(f"pom-{version}.xml")
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    done = subprocess.run(  # noqa: S603  (our own arguments)
        [*command, f"-DoutputDirectory={folder}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    if done.returncode != 0 or not all((folder / name).exists() for name in needed):
        raise JavaError(f"mvn could not fetch the RocketMQ jars:\n{done.stdout}{done.stderr}")
    return folder


def free_port(chance: random.Random | None = None) -> int:
    """Return a port p such that p-2, p and p+1 are free: what one broker listens on.

    Systems give ports from 32,768 on to whoever connects: these are below. Nobody holds it before
    the broker does, so workers of pytest-xdist draw from ports of their own, and none is given
    again soon. `chance` draws it, where a run is to be repeated.
    """
    chance = chance or random.SystemRandom()
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    for _ in range(200):
        port = chance.randrange(20_000 + 10 * worker, 32_000, 10 * workers) + 5
        with contextlib.ExitStack() as held:
            try:
                for one in (port - 2, port, port + 1):
                    probe = held.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", one))
            except OSError:
                continue
            if port not in _GIVEN:
                _GIVEN.append(port)
                return port
    raise JavaError("no free ports")


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerPlan:
    """A broker's properties, the same file for the Java broker and for ours."""

    name: str
    port: int
    namesrv: str
    store: Path
    extra: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self.port}"

    def text(self) -> str:
        """Return the property file's content: tiny files, nothing that tests do not need."""
        properties = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": self.name,
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(self.port),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
            "mappedFileSizeConsumeQueue": "20000",
            "maxHashSlotNum": "5000",
            "maxIndexNum": "20000",
            "flushDiskType": "ASYNC_FLUSH",
            "autoCreateTopicEnable": "true",
            "timerWheelEnable": "false",
            "transactionTimeOut": "1000",
            "transactionCheckInterval": "1000",
            "messageDelayLevel": "1s 1s 1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 1m 2m 3m 4m",
            **self.extra,
        }
        return "".join(f"{name}={value}\n" for name, value in properties.items())

    def write(self, folder: Path) -> Path:
        """Write the file into `folder` and return its path."""
        path = folder / f"{self.name}-{self.port}.conf"
        path.write_text(self.text())
        return path


class Process:
    """A server process with its output in a file; started when its boot line was read."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.output = folder / f"{name}.out"
        self.command = list(command)
        # Both write below their user's home, where a test has no business.
        self._environment = {**os.environ, "ROCKETMQ_HOME": str(folder), "HOME": str(folder)}
        self._environment.pop("NAMESRV_ADDR", None)
        self._environment.pop(CACHE_VARIABLE, None)
        (folder / "conf").mkdir(exist_ok=True)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the running child."""
        if self._child is None:
            raise JavaError(f"{self.name} does not run")
        return self._child.pid

    def start(self, ready: str = "boot success", timeout_s: float = 240.0) -> Self:
        """Start and wait for `ready` in the output. Raises JavaError with the output."""
        with self.output.open("ab") as out:
            begin = out.tell()
            self._child = subprocess.Popen(  # noqa: S603  (our own arguments)
                self.command, stdout=out, stderr=subprocess.STDOUT, env=self._environment
            )
        end = time.monotonic() + timeout_s
        while ready.encode() not in self.output.read_bytes()[begin:]:
            if self._child.poll() is not None or time.monotonic() > end:
                self.kill()
                shown = self.output.read_text(errors="replace")[-4000:]
                raise JavaError(f"{self.name} did not start:\n{shown}")
            time.sleep(0.05)
        return self

    def stop(self, timeout_s: float = 40.0) -> int:
        """Ask it to end (SIGTERM) and return its exit code. Raises JavaError when it does not."""
        child, self._child = self._child, None
        if child is None:
            return 0
        child.send_signal(signal.SIGTERM)
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise JavaError(f"{self.name} did not stop within {timeout_s} s") from None

    def kill(self) -> None:
        """End it at once (SIGKILL): nothing is flushed, nothing is said to anybody."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()


def java_command(
    jars: Path,
    home: Path,
    main: str,
    *arguments: str,
    heap: str = "512m",
    classes: Path | None = None,
) -> list[str]:
    """Return the command line of a JVM whose logs and passing files stay below `home`.

    `classes` are programs of the tests; they stand behind the jars (java_classes.py says why).
    """
    memory = [f"-Xms{heap}", f"-Xmx{heap}"]
    path = f"{jars}/*" if classes is None else f"{jars}/*:{classes}"
    where = [f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", "-cp", path]
    return ["java", *JVM_FLAGS, *archive_flags(jars), *memory, *where, main, *arguments]


def java_name_server(
    jars: Path, folder: Path, port: int, more: Mapping[str, str] | None = None
) -> Process:
    """Return the Java name server, not yet started."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "namesrv.conf"
    properties = {"listenPort": str(port), "bindAddress": "127.0.0.1", **(more or {})}
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    command = java_command(jars, folder, main, "-c", str(config), heap="128m")
    return Process("java-namesrv", command, folder)


def java_broker(jars: Path, folder: Path, plan: BrokerPlan, *, as_shipped: bool = False) -> Process:
    """Return the Java broker, not yet started; `as_shipped` with its own defaults of `SPARING`."""
    folder.mkdir(parents=True, exist_ok=True)
    if not as_shipped:
        plan = dataclasses.replace(plan, extra={**SPARING, **plan.extra})
    main = "org.apache.rocketmq.broker.BrokerStartup"
    config = str(plan.write(folder))
    command = java_command(jars, folder, main, "-c", config)
    return Process(f"java-{plan.name}", command, folder)


def java_container(jars: Path, folder: Path, port: int, namesrv: str) -> Process:
    """Return the Java container of brokers, with none in it and not yet started."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "container.conf"
    config.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nnamesrvAddr={namesrv}\n")
    main = "org.apache.rocketmq.container.BrokerContainerStartup"
    return Process("java-container", java_command(jars, folder, main, "-c", str(config)), folder)


def roquet_process(name: str, folder: Path, *arguments: str) -> Process:
    """Return one of our own servers as a process, not yet started."""
    return Process(name, [sys.executable, "-m", "roquet", *arguments], folder)


class Driver:
    """Java producers, push consumers and mqadmin in one JVM (tests/interop/java/Driver.java)."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        flags: Sequence[str] = (),
        *,
        main: str = "Driver",
        programs: Path = PROGRAMS,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        classes = compiled(sorted(programs.glob("*.java")), jars, cache_folder())
        command = java_command(jars, folder, main, heap="256m", classes=classes)
        command[1:1] = flags
        self._errors = (folder / "driver.err").open("ab")
        # Some admin commands leave files where they run.
        self._child = subprocess.Popen(  # noqa: S603  (our own arguments)
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        self._buffer = b""
        self._read(60.0)

    def mqadmin(self, *arguments: str, timeout_s: float = 60.0) -> str:
        """Run one admin command and return what it printed."""
        return str(self.ask({"do": "mqadmin", "args": list(arguments)}, timeout_s))

    def mqadmin_for(self, limit_s: float, *arguments: str) -> str:
        """Run an admin command that may not end by itself for at most `limit_s`."""
        request = {"do": "mqadmin", "args": list(arguments), "limit_ms": int(limit_s * 1000)}
        return str(self.ask(request, limit_s + 60.0))

    def stay(self, kind: str, namesrv: str, topic: str, group: str) -> str:
        """Start a client ("producer" or "consumer") that stays until `leave`; return its id."""
        request = {"do": "stay", "kind": kind, "namesrv": namesrv, "topic": topic, "group": group}
        return str(self.ask({**request, "tags": "*"}, 60.0))

    def leave(self, client: str) -> None:
        """Stop a client that stays."""
        self.ask({"do": "leave", "client": client}, 60.0)

    def send(
        self,
        namesrv: str,
        topic: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        mode: str = "sync",
        group: str = "driver_producers",
        pause_ms: int = 0,
        namespace: str | None = None,
    ) -> list[dict[str, Any]]:
        """Send by the Java producer; modes: sync, batch, oneway, ordered (by property shard).

        `pause_ms` is how long it waits before each message.
        """
        encoded = [{**one, "body": base64.b64encode(one["body"]).decode()} for one in messages]
        request: dict[str, Any] = {"do": "send", "namesrv": namesrv, "topic": topic}
        request.update(group=group, mode=mode, namespace=namespace)
        request["pause_ms"] = pause_ms
        timeout_s = 60.0 + pause_ms * len(encoded) / 1000
        answer = self.ask({**request, "messages": encoded}, timeout_s)
        return cast("list[dict[str, Any]]", answer)

    def consume(
        self,
        namesrv: str,
        topic: str,
        group: str,
        count: int,
        *,
        tags: str = "*",
        sql: str | None = None,
        orderly: bool = False,
        fail_once: str | None = None,
        timeout_s: float = 40.0,
        linger_s: float = 0.3,
        pop_invisible_ms: int | None = None,
        namespace: str | None = None,
    ) -> list[dict[str, Any]]:
        """Consume by the Java push consumer until `count` came, and `linger_s` longer.

        With `pop_invisible_ms` the broker assigns queues, and messages are popped for that time
        where the broker says so.
        """
        request = {
            "do": "consume",
            "namesrv": namesrv,
            "topic": topic,
            "group": group,
            "tags": tags,
            "sql": sql,
            "orderly": orderly,
            "fail_once": fail_once,
            "count": count,
            "timeout_ms": int(timeout_s * 1000),
            "linger_ms": int(linger_s * 1000),
            "pop": pop_invisible_ms is not None,
            "invisible_ms": pop_invisible_ms,
            "namespace": namespace,
        }
        answer = cast("list[dict[str, Any]]", self.ask(request, timeout_s + 30))
        for one in answer:
            one["body"] = base64.b64decode(one["body"])
        return answer

    def lite_pull(
        self, namesrv: str, topic: str, group: str, count: int, *, timeout_s: float = 40.0
    ) -> list[dict[str, Any]]:
        """Poll by the Java lite pull consumer until `count` came (LitePulls.java)."""
        where = {"namesrv": namesrv, "topic": topic, "group": group}
        limits = {"count": count, "timeout_ms": int(timeout_s * 1000)}
        found = self.ask({"do": "lite_pull", **where, **limits}, timeout_s + 30)
        answer = cast("list[dict[str, Any]]", found)
        for one in answer:
            one["body"] = base64.b64decode(one["body"])
        return answer

    def exchange(self, what: str, timeout_s: float = 60.0, **fields: Any) -> Any:
        """Have the Java client do a transaction or a request-reply (Exchanges.java)."""
        return self.ask({"do": "exchange", "what": what, **fields}, timeout_s)

    def timers(
        self, namesrv: str, topic: str, steps: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Send and recall timer messages by the Java producer (Timers.java); an answer a step.

        A step is a message (body, and delay_s, delay_ms or deliver_ms) or `recall`, a handle.
        """
        encoded = [
            {**one, "body": base64.b64encode(one["body"]).decode()} if "body" in one else {**one}
            for one in steps
        ]
        request = {"do": "timers", "namesrv": namesrv, "topic": topic, "steps": encoded}
        return cast("list[dict[str, Any]]", self.ask(request, 60.0))

    def filter(self, cases: Sequence[Mapping[str, Any]]) -> str:
        """Ask Java's SQL92 filter: a letter for each expression and properties.

        T, F, N are true, false and null, E is an exception, X an expression that does not parse.
        """
        return str(self.ask({"do": "filter", "cases": list(cases)}, 60.0))

    def close(self) -> None:
        """End the JVM."""
        if self._child.stdin is not None:
            self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
        self._errors.close()

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> Any:
        """Have the program do something; return its result. Raises JavaError with its own."""
        if self._child.stdin is None:
            raise JavaError("the driver has no input")
        self._child.stdin.write(json.dumps(request).encode() + b"\n")
        self._child.stdin.flush()
        answer = self._read(timeout_s)
        if "error" in answer:
            raise JavaError(answer["error"])
        return answer.get("result")

    def _read(self, timeout_s: float) -> dict[str, Any]:
        if self._child.stdout is None:
            raise JavaError("the driver has no output")
        end = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(end - time.monotonic()):
                    raise JavaError(f"the driver did not answer within {timeout_s} s")
                chunk = os.read(self._child.stdout.fileno(), 1 << 20)
                if not chunk:
                    raise JavaError(f"the driver ended with code {self._child.wait()}")
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return cast("dict[str, Any]", json.loads(line))
