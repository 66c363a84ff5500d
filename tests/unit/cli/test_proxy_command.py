"""`roquet proxy` as a process: what it says, what it refuses, and how it ends."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from cli_harness import Running, dev_server, roquet

if TYPE_CHECKING:
    from pathlib import Path


def _file(folder: Path, **settings: object) -> str:
    file = folder / "rmq-proxy.json"
    file.write_text(json.dumps(settings))
    return str(file)


def test_proxy_says_where_it_listens_and_which_keys_it_does_not_know(tmp_path: Path) -> None:
    with dev_server(tmp_path, "--no-console") as (namesrv, _):
        settings = {"namesrvAddr": namesrv, "grpcServerPort": 0, "proxyMode": "cluster"}
        more = {"grpcServerPrt": 1, "proxyName": "a", "rocketmqMQClientNum": 6}
        running = Running(tmp_path, "proxy", "-pc", _file(tmp_path, **settings, **more))
        line = running.line()
        assert line.startswith("The Proxy boot success. gRPC on 127.0.0.1:")
        assert line.endswith(f", name servers {namesrv}")
        port = int(line.split(",")[0].rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), timeout=20).close()
        assert running.stop() == 0
        said = running.errors.read_text()
        assert "grpcServerPrt" in said
        assert "did you mean grpcServerPort" in said
        assert "proxyName has no effect here: proxies need not know of one another" in said
        assert "rocketmqMQClientNum has no effect here: one connection" in said


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "which name servers?"),
        (("-n", "127.0.0.1:1", "-pm", "LOCAL"), "roquet broker --proxy"),
        (("-n", "nowhere:port"), "nowhere:port"),
        (("-n", "127.0.0.1:1", "-pc", "missing.json"), "cannot read missing.json"),
    ],
)
def test_bad_arguments_are_one_line(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    ended = roquet(tmp_path, "proxy", *arguments)
    assert ended.returncode == 254
    assert text in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not ended.stdout


@pytest.mark.parametrize("key", ["authenticationEnabled", "authorizationEnabled", "enableACL"])
def test_settings_that_would_check_accounts_are_refused(tmp_path: Path, key: str) -> None:
    file = _file(tmp_path, **{key: True})
    ended = roquet(tmp_path, "proxy", "-n", "127.0.0.1:1", "-pc", file)
    assert ended.returncode == 254
    assert f"{key}: accounts of clients are not checked in cluster mode" in ended.stderr


def test_taken_port_is_said_with_the_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = roquet(tmp_path, "proxy", "-n", "127.0.0.1:1", "--grpc-port", port)
    assert ended.returncode == 253
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "--grpc-port takes another" in ended.stderr
    assert ended.stderr.count("\n") == 1
