"""The programs of `examples/`, run as their README says, against real servers."""

from __future__ import annotations

import functools
import http.client
import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import roquet.sync
from cli_harness import environment
from roquet.testing import Broker
from roquet.testing.java import free_port
from roquet.testing.pair import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[3] / "examples"
ORDER = {"id": "o-1", "item": "tea", "count": 2}
FAST = {
    # Retries and checks of transactions within seconds; their rules are the same.
    "messageDelayLevel": " ".join(["1s"] * 18),
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
}


class Program:
    """A program of the folder, and what it has printed."""

    def __init__(self, home: Path, *words: str, url: str = "") -> None:
        self.lines: list[str] = []
        self.errors = home / f"{len(list(home.iterdir()))}.errors"
        with self.errors.open("wb") as errors:
            names = url.removeprefix("rmq://")
            self._child = subprocess.Popen(
                [sys.executable, "-u", *words],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=EXAMPLES.parent,
                env={**environment(home), **({"NAMESRV_ADDR": names} if names else {})},
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as printed:
            self.lines.extend(line.rstrip("\n") for line in printed)

    def until(self, text: str, within_s: float = 45) -> str:
        """Wait until a line has `text`, and return it."""

        def found() -> list[str]:
            lines = [*self.lines, *self.errors.read_text().splitlines()]
            assert self._child.poll() is None or any(text in it for it in lines), lines
            return [it for it in lines if text in it]

        wait_until(f"{text!r} of {self.errors}", lambda: bool(found()), within_s)
        return found()[0]

    def end(self, number: int | None = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        if number is not None and self._child.poll() is None:
            self._child.send_signal(number)
        code = self._child.wait(170)
        self._reader.join(10)
        return code


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Return status and JSON of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        text = body if isinstance(body, str) else json.dumps(body)
        connection.request(method, path, text, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def service(home: Path, url: str) -> tuple[Program, int]:
    """Run the service on a free port, until it is ready; return the port too."""
    words = ["-m", "uvicorn", "--app-dir", "examples", "order_service:app", "--port", "0"]
    program = Program(home, *words, url=url)
    line = program.until("running on")
    return program, int(line.split("http://127.0.0.1:")[1].split()[0])


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(FAST) as made:
        yield made


def test_order_service_sends_bills_and_stops_in_good_order(broker: Broker, tmp_path: Path) -> None:
    program, port = service(tmp_path, broker.url)
    try:
        assert ask(port, "GET", "/health") == (200, {"status": "ok"})
        assert ask(port, "GET", "/orders/o-1")[0] == 404
        status, placed = ask(port, "POST", "/orders", ORDER)
        assert (status, placed["id"]) == (202, "o-1")
        wait_until("o-1 is billed", lambda: ask(port, "GET", "/orders/o-1") == (200, ORDER), 30)
        assert ask(port, "POST", "/orders", {**ORDER, "count": 0})[0] == 422
        assert ask(port, "POST", "/orders", "no JSON")[0] == 422
        with roquet.sync.connect(broker.url) as mq, mq.producer() as producer:
            producer.send("orders", b"no order")  # by another program
            wait_until(
                "it is a dead letter",
                lambda: "%DLQ%order-billing" in mq.admin().topics.names(),
                30,
            )
        for number in range(20):
            assert ask(port, "POST", "/orders", {**ORDER, "id": f"n-{number}"})[0] == 202
    finally:
        # uvicorn ends by the signal that it was sent, after the application has stopped.
        assert program.end() == -signal.SIGTERM
    assert "Application shutdown complete" in program.errors.read_text()
    with roquet.sync.connect(broker.url) as mq:
        admin = mq.admin()
        assert admin.groups.connection("order-billing") is None, "it has left its group"
        left = admin.groups.lag("order-billing", "orders")
    again, port = service(tmp_path, broker.url)
    try:
        # What the first process has committed does not come again; what it has not does.
        wait_until("nothing is left", lambda: lag(broker.url) == 0, 30)
        billed = [ask(port, "GET", f"/orders/n-{number}")[0] for number in range(20)]
        assert billed.count(200) == left
        assert ask(port, "GET", "/orders/o-1")[0] == 404
    finally:
        assert again.end() == -signal.SIGTERM


def lag(url: str) -> int:
    with roquet.sync.connect(url) as mq:
        return mq.admin().groups.lag("order-billing", "orders")


def test_order_service_says_that_an_order_was_not_stored(tmp_path: Path) -> None:
    with Broker({"autoCreateTopicEnable": "true"}) as made:
        program, port = service(tmp_path, made.url)
    try:
        status, answer = ask(port, "POST", "/orders", ORDER)
        assert status == 503
        assert "was not stored" in answer["detail"]
    finally:
        assert program.end() == -signal.SIGTERM


def test_order_pipeline_bills_each_order_of_the_database_once(
    broker: Broker, tmp_path: Path
) -> None:
    program = Program(tmp_path, "examples/order_pipeline.py", url=broker.url)
    assert program.end(None) == 0, (program.lines, program.errors.read_text())
    printed = "\n".join(program.lines)
    assert "shop: the broker asks for torn: written" in printed
    assert "billing: slow billed at attempt 2" in printed
    assert "mending: typed is sent again" in printed
    assert program.lines[-1] == (
        "billed ['plain', 'slow', 'torn', 'typed'] of ['plain', 'slow', 'torn', 'typed']"
    )
    assert "declined billed" not in printed


@pytest.mark.parametrize("name", ["order_pipeline", "order_totals"])
def test_example_without_a_cluster_ends_in_one_line(tmp_path: Path, name: str) -> None:
    program = Program(tmp_path, f"examples/{name}.py", url="127.0.0.1:1")
    assert program.end(None) == 1
    (line,) = program.errors.read_text().splitlines()
    assert line.startswith(f"{name}: no name server answers: 127.0.0.1:1: ")
    assert line.endswith("try: roquet dev")


def test_order_service_without_a_cluster_answers_and_stops_without_a_traceback(
    tmp_path: Path,
) -> None:
    program, port = service(tmp_path, "127.0.0.1:1")
    try:
        assert ask(port, "POST", "/orders", ORDER)[0] == 503
    finally:
        assert program.end() == -signal.SIGTERM
    assert "Traceback" not in program.errors.read_text()


def test_relay_server_whose_port_is_taken_ends_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1])
        words = ("--id", "1", "--type", "1", "--port", number)
        program = Program(tmp_path, "examples/relay_server.py", *words)
        assert program.end(None) == 1
    (line,) = program.errors.read_text().splitlines()
    assert line.startswith("relay_server: ")
    assert number in line


def test_examples_take_the_address_of_the_cluster_in_one_way() -> None:
    for file in [*EXAMPLES.glob("order_*.py"), *(EXAMPLES.parent / "docs/notebooks").glob("*.py")]:
        text = file.read_text()
        assert 'os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")' in text, file
        assert "sys.argv" not in text, file


def test_relay_servers_play_with_one_another_through_the_relay(tmp_path: Path) -> None:
    folder = tmp_path / "relay"
    folder.mkdir()
    ports = {1001: free_port(), 2001: free_port(), 2002: free_port()}
    listed = json.loads((EXAMPLES / "relay/servers.json").read_text())
    assert [it["id"] for it in listed["servers"]] == [*ports]
    for entry in listed["servers"]:
        entry["port"] = ports[entry["id"]]
    (folder / "servers.json").write_text(json.dumps(listed))
    quiet = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    lists = http.server.ThreadingHTTPServer(("127.0.0.1", 0), quiet)
    threading.Thread(target=lists.serve_forever, daemon=True).start()
    settings = (EXAMPLES / "relay/relay.toml").read_text()
    assert ":7072/" in settings
    (tmp_path / "relay.toml").write_text(
        settings.replace(":7072/", f":{lists.server_port}/")
        .replace("7071", "0")
        .replace("servers-copy.json", str(tmp_path / "copy.json"))
    )
    started: list[Program] = []
    try:
        for number in (2001, 2002, 1001):
            words = ["--id", str(number), "--type", str(number // 1000)]
            words += ["--port", str(ports[number])]
            if number == 1001:
                words += ["--player", "ann", "--player", "bob"]
            program = Program(tmp_path, "examples/relay_server.py", *words)
            started.append(program)
            program.until(f"server {number} listens on port {ports[number]}")
        relay = Program(tmp_path, "-m", "roquet", "relay", "-c", str(tmp_path / "relay.toml"))
        started.append(relay)
        lobby = started[2]
        for player in ("ann", "bob"):
            # As often as it takes: the same server knows the player.
            lobby.until(f"{player}: move 2 on 200")
        of_ann = int(lobby.until("ann: move 2 on ").split(" on ")[1])
        other = 4003 - of_ann
        assert started[of_ann - 2001].end() == 0
        lobby.until(f"ann: move 1 on {other}")
    finally:
        codes = [program.end() for program in started]
        lists.shutdown()
        lists.server_close()
    assert codes == [0] * len(started)
    assert all("ended in good order" in it.lines[-1] for it in started[:3])
