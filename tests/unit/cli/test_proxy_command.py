"""`roquet proxy` as a process: what it says, what it refuses, and how it ends."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

import pytest

from cli_harness import Running, dev_server, roquet
from roquet.acl.credentials import Credentials
from roquet.acl.files import AclConfig
from roquet.auth.config import AuthConfig
from roquet.base.errors import UsageError
from roquet.cli.servers.cluster_proxy import settings_of
from roquet.cli.servers.proxy import ProxyFlags, rules_from, rules_of


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
        assert "proxyName has no effect here: proxies have no names" in said
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


INNER = {"innerClientAuthenticationCredentials": '{"accessKey":"in","secretKey":"canary"}'}
BOTH = {"authenticationEnabled": True, "authorizationEnabled": True}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"enableACL": True}, "enableACL = 'true': accounts of RocketMQ 4.x are not checked"),
        ({"enableACL": "perhaps"}, "enableACL"),
        ({**INNER, "authenticationEnabled": True}, "needs authorizationEnabled = 'true'"),
        ({**INNER, "authorizationEnabled": True}, "needs authenticationEnabled = 'true'"),
        (BOTH, "needs innerClientAuthenticationCredentials"),
        ({**BOTH, "innerClientAuthenticationCredentials": "canary"}, "accessKey"),
        ({**BOTH, **INNER, "authenticationWhitelist": "10"}, "every call is checked"),
        ({**BOTH, **INNER, "authorizationWhitelist": "SendMessage"}, "every call is checked"),
        (
            {"minInvisibleTimeMillsForRecv": 20_000, "maxInvisibleTimeMills": 10_000},
            "minInvisibleTimeMillsForRecv = 20000 is more than maxInvisibleTimeMills = 10000",
        ),
    ],
)
def test_settings_that_cannot_be_obeyed_are_refused(
    tmp_path: Path, settings: dict[str, object], text: str
) -> None:
    ended = roquet(tmp_path, "proxy", "-n", "127.0.0.1:1", "-pc", _file(tmp_path, **settings))
    assert ended.returncode == 254
    assert text in ended.stderr
    assert "canary" not in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_settings_of_accounts_that_ask_for_nothing_are_obeyed(tmp_path: Path) -> None:
    flags = ProxyFlags(Path(_file(tmp_path, enableACL=False, authenticationEnabled=False)))
    found = settings_of(flags, "127.0.0.1:1")
    assert not found.checks_clients
    flags = ProxyFlags(Path(_file(tmp_path, **BOTH, **INNER, userCacheExpiredSeconds=7)))
    found = settings_of(flags, "127.0.0.1:1")
    assert found.checks_clients
    assert found.account == Credentials("in", "canary")
    assert found.cluster.users_expire_s == 7


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("minInvisibleTimeMillsForRecv", "maxInvisibleTimeMills"),
        ("defaultInvisibleTimeMills", "maxInvisibleTimeMills"),
        (
            "grpcClientConsumerMinLongPollingTimeoutMillis",
            "grpcClientConsumerMaxLongPollingTimeoutMillis",
        ),
        ("grpcClientProducerBackoffInitialMillis", "grpcClientProducerBackoffMaxMillis"),
        ("grpcMaxInboundMessageSize", "grpcInboundBytesMax"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_both_names(low: str, high: str) -> None:
    # What others of them are by default contradicts nothing.
    least = {"minInvisibleTimeMillsForRecv": "0", "defaultInvisibleTimeMills": "2000"}
    for number, wrong in ((5000, False), (5001, True)):
        given = {**least, low: str(number), high: "5000"}
        if wrong:
            with pytest.raises(UsageError, match=f"{low} = 5001 is more than {high} = 5000"):
                rules_from(given, None, {})
        else:
            rules_from(given, None, {})
    if high == "maxInvisibleTimeMills":
        rules_from({low: "5001", high: "0"}, None, {})


@pytest.mark.parametrize("key", ["enableACL", "authenticationEnabled", "authorizationEnabled"])
def test_accounts_in_a_file_of_local_mode_have_to_be_those_of_the_broker(
    tmp_path: Path, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    on = AclConfig(enabled=True), AuthConfig(authentication=True, authorization=True)
    off = AclConfig(), AuthConfig()
    for asked, same, other in ((True, on, off), (False, off, on)):
        flags = ProxyFlags(Path(_file(tmp_path, **{key: asked})))
        rules_of(flags, *same)
        assert not caplog.text
        with pytest.raises(UsageError, match=f"{key} = '{str(asked).lower()}' in the file of"):
            rules_of(flags, *other)


def test_broker_with_a_file_that_wants_other_accounts_does_not_start(tmp_path: Path) -> None:
    file = _file(tmp_path, authenticationEnabled=True)
    ended = roquet(tmp_path, "broker", "--proxy", "--proxy-config", file)
    assert ended.returncode == 254
    assert "authenticationEnabled = 'false' at the broker" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_taken_port_is_said_with_the_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = roquet(tmp_path, "proxy", "-n", "127.0.0.1:1", "--grpc-port", port)
    assert ended.returncode == 253
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "--grpc-port takes another" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_taken_health_port_is_said_with_its_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ("-n", "127.0.0.1:1", "--grpc-port", "0", "--health-port", port)
        ended = roquet(tmp_path, "proxy", *words)
    assert ended.returncode == 253
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "--health-port takes another" in ended.stderr


def test_address_of_another_machine_names_no_port_flag(tmp_path: Path) -> None:
    words = ("-n", "127.0.0.1:1", "--grpc-port", "0", "--bind", "203.0.113.9")
    ended = roquet(tmp_path, "proxy", *words)
    assert ended.returncode == 253
    assert "this machine has no such address" in ended.stderr
    assert "takes another" not in ended.stderr


def test_port_that_only_a_connection_has_is_said_to_become_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        port = str(client.getsockname()[1])
        # The client closes first: its port is in TIME-WAIT, and nobody listens there.
        client.close()
        ended = roquet(tmp_path, "proxy", "-n", "127.0.0.1:1", "--grpc-port", port)
    assert ended.returncode == 253
    assert f"ss -tan 'sport = :{port}'" in ended.stderr
    assert "try again in a minute" in ended.stderr
    assert ended.stderr.rstrip().endswith("--grpc-port takes another")
