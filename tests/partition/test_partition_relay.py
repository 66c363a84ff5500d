"""A relay and inner servers on hosts of their own, cut from one another (`make partition`)."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hosts_harness import Hosts, until

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = Path(__file__).parents[1] / "partition_server.py"
PORT = 7001
RECONNECT_MS = 500


@pytest.fixture
def lists(tmp_path: Path) -> Iterator[tuple[Path, list[int]]]:
    """Serve the list of servers from a file, on every address."""
    file = tmp_path / "servers.json"

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = file.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:  # type: ignore[explicit-override]
            return

    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield file, [server.server_port]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("how", ["both ways", "to the server only", "from the server only"])
def test_a_server_that_is_cut_off_is_gone_and_comes_back(
    lists: tuple[Path, list[int]], tmp_path: Path, how: str
) -> None:
    file, (port,) = lists
    with Hosts("relay", "one", "two") as hosts:
        entries = [
            {"id": number, "type": 1, "host": hosts.addresses[name], "port": PORT}
            for number, name in ((1, "one"), (2, "two"))
        ]
        file.write_text(json.dumps({"version": 1, "servers": entries}))
        servers = {
            name: hosts.run(name, tmp_path, str(SERVER), str(number), hosts.addresses[name])
            for number, name in ((1, "one"), (2, "two"))
        }
        for name, server in servers.items():
            until(f"{name} listens", lambda s=server: s.says("listening"))  # type: ignore[misc]
        settings = {
            "config_url": f"http://{hosts.own}:{port}/servers",
            "config_copy": str(tmp_path / "copy.json"),
            "http_port": "0",
            "reconnect_ms": str(RECONNECT_MS),
            "heartbeat_ms": "200",
            "heartbeat_timeout_ms": "1000",
            "connect_timeout_ms": "500",
        }
        flags = [part for key, value in settings.items() for part in ("-s", f"{key}={value}")]
        hosts.run("relay", tmp_path, "-m", "roquet", "relay", *flags)
        until("the fleet is whole", lambda: all(it.says("others 1") for it in servers.values()))
        if how != "from the server only":
            hosts.cut("relay", "two")
        if how != "to the server only":
            hosts.cut("two", "relay")
        until("one hears that two has gone", lambda: servers["one"].says("others 0"))
        before = servers["one"].said.read_text().count("others 1")
        if how != "from the server only":
            hosts.heal("relay", "two")
        if how != "to the server only":
            hosts.heal("two", "relay")
        until(
            "the fleet is whole again",
            lambda: servers["one"].said.read_text().count("others 1") > before,
        )
