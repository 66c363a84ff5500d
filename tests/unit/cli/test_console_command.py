"""`roquet console`, and the console of `roquet dev`, as processes."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, cast

import pytest

from cli_harness import Running, dev_server, roquet
from oidc_provider import SECRET, provider
from roquet.console.login.settings import ClusterConfig, load
from roquet.console.roles import Role

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "console.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _address(line: str) -> tuple[str, str]:
    address, _, token = line.split()[1].partition("/login")
    return address, token.removeprefix("#")


def _signed_in(address: str, token: str) -> str:
    request = urllib.request.Request(
        f"{address}/api/login",
        json.dumps({"token": token}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(json.load(answer)["role"])


def test_dev_has_a_console_and_prints_where_to_sign_in(tmp_path: Path) -> None:
    running = Running(tmp_path, "dev", "--port", "0", "--namesrv-port", "0", "--console-port", "0")
    lines = running.lines_until("Ctrl-C")
    assert len(lines) <= 12
    (line,) = [it for it in lines if it.startswith("  console ")]
    address, token = _address(line)
    assert address.startswith("http://127.0.0.1:")
    assert _signed_in(address, token) == "administrator"
    assert _address(running.line())[1] != token, "the next token"
    assert running.stop() == 0


def test_dev_without_a_console_says_nothing_of_it(tmp_path: Path) -> None:
    with dev_server(tmp_path, "--no-console"):
        pass
    running = Running(tmp_path, "dev", "--port", "0", "--namesrv-port", "0", "--no-console")
    assert not [it for it in running.lines_until("Ctrl-C") if "console" in it]
    assert running.stop() == 0


def test_a_taken_console_port_of_dev_is_said_with_the_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        flags = ("--port", "0", "--namesrv-port", "0", "--console-port", port)
        ended = roquet(tmp_path, "dev", *flags)
    assert ended.returncode == 253
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "--console-port takes another" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_console_of_a_cluster_runs_and_stops(tmp_path: Path) -> None:
    with dev_server(tmp_path, "--no-console") as (namesrv, _):
        flags = ("-n", namesrv, "--port", "0", "--role", "viewer")
        running = Running(tmp_path, "console", *flags)
        address, token = _address(running.line())
        assert running.line() == f"Console of {namesrv}; the address above signs in once."
        assert _signed_in(address, token) == "viewer"
        assert running.stop() == 0


def test_console_of_a_cluster_that_is_away_says_so(tmp_path: Path) -> None:
    running = Running(tmp_path, "console", "-n", "127.0.0.1:1", "--port", "0")
    running.lines_until("signs in once")
    deadline_s = time.monotonic() + 60
    while "the console goes on" not in running.errors.read_text():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    assert running.stop() == 0


def _of(address: str, token: str, path: str) -> dict[str, Any]:
    """Sign in and return what a call of the API gives."""
    kind = {"content-type": "application/json"}
    body = json.dumps({"token": token}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"{address}/api/login", body, kind), timeout=20
    ) as answer:
        bearer = {"authorization": f"Bearer {json.load(answer)['session']}"}
    wanted = urllib.request.Request(f"{address}/api{path}", None, bearer)
    with urllib.request.urlopen(wanted, timeout=20) as answer:
        return cast("dict[str, Any]", json.load(answer))


def test_proxies_are_shown_with_their_figures(tmp_path: Path) -> None:
    ports = ("--grpc-port", "0", "--health-port", "0")
    with socket.create_server(("127.0.0.1", 0)) as free:
        remoting = ("--remoting-port", str(free.getsockname()[1]))
    with dev_server(tmp_path, "--no-console") as (namesrv, _):
        lonely = Running(tmp_path, "proxy", "-n", "127.0.0.1:1", *ports)
        proxy = Running(tmp_path, "proxy", "-n", namesrv, *ports, *remoting)
        places = [
            it.line().split("health and figures on ")[1].split(",")[0] for it in (proxy, lonely)
        ]
        places.append("127.0.0.1:1")
        flags = [word for it in places for word in ("--cluster-proxy", it)]
        console = Running(tmp_path, "console", "-n", namesrv, "--port", "0", *flags)
        found = _of(*_address(console.line()), "/proxies")["rows"]
        assert [it["address"] for it in found] == places
        assert [it["state"] for it in found] == ["ready", "not ready", "away"]
        figures = {it["name"]: it for it in found[0]["figures"]}
        assert figures["roquet_grpc_connections"]["about"] == "Connections of gRPC"
        assert figures["roquet_remoting_connections"]["value"] == 0
        assert "127.0.0.1:1" in found[1]["why"]
        assert "does not answer" in found[2]["why"]
        assert [it.stop() for it in (console, lonely, proxy)] == [0, 0, 0]


def test_dev_takes_settings_of_the_broker_but_those_with_a_flag(tmp_path: Path) -> None:
    with dev_server(tmp_path, "--no-console", "-s", "maxmessagesize=70000") as (namesrv, _):
        words = ("broker", "config", "get", "dev", "maxMessageSize")
        assert "70000" in roquet(tmp_path, *words, "-n", namesrv).stdout
    refused = roquet(tmp_path, "dev", "-s", "listenport=1")
    assert (refused.returncode, "-s listenPort: --port sets it" in refused.stderr) == (2, True)


def test_contexts_are_shown_beside_the_first_cluster(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with (
        dev_server(folders[0], "--no-console") as (first, _),
        dev_server(folders[1], "--no-console") as (second, _),
    ):
        assert roquet(tmp_path, "context", "add", "two", second).returncode == 0
        unknown = roquet(tmp_path, "console", "-n", first, "--port", "0", "--cluster", "three")
        assert "there is no context 'three'" in unknown.stderr
        running = Running(tmp_path, "console", "-n", first, "--port", "0", "--cluster", "two")
        address, token = _address(running.line())
        body = json.dumps({"token": token}).encode()
        kind = {"content-type": "application/json"}
        request = urllib.request.Request(f"{address}/api/login", body, kind)
        with urllib.request.urlopen(request, timeout=20) as answer:
            bearer = {"authorization": f"Bearer {json.load(answer)['session']}"}
        shown: list[str] = []
        for path in ("", "/c/two"):
            wanted = urllib.request.Request(f"{address}{path}/api/name-servers", None, bearer)
            with urllib.request.urlopen(wanted, timeout=20) as answer:
                shown += [it["address"] for it in json.load(answer)["rows"]]
        assert shown == [first, second]
        assert running.stop() == 0


def test_where_the_packages_are_missing_both_commands_say_what_to_install(tmp_path: Path) -> None:
    missing = tmp_path / "packages" / "starlette"
    missing.mkdir(parents=True)
    text = 'raise ModuleNotFoundError("No module named starlette", name="starlette")\n'
    (missing / "__init__.py").write_text(text)
    running = Running(
        tmp_path, "dev", "--port", "0", "--namesrv-port", "0", packages=missing.parent
    )
    lines = running.lines_until("Ctrl-C")
    assert "  console      not installed: pip install 'roquet-VERSION.whl[console]'" in lines
    assert running.stop() == 0
    running = Running(tmp_path, "console", "-n", "127.0.0.1:1", packages=missing.parent)
    assert running.child.wait(30) == 2
    assert running.stop() == 2
    said = running.errors.read_text()
    assert "the console needs more packages: pip install 'roquet-VERSION.whl[console]'" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--bind", "0.0.0.0"), "passwords would cross the network in the clear"),
        (("--root-path", "mq"), "--root-path"),
        (("--tls-cert", "/no/such"), "give --tls-cert and --tls-key"),
        (("--tls-cert", "/no/such", "--tls-key", "/no/such"), "--tls-cert, --tls-key"),
        (("--users", "/no/such"), "--users /no/such"),
        (("--audit-log", "/no/such/file"), "--audit-log"),
        (("--login", "/no/such"), "--login /no/such"),
    ],
)
def test_a_wrong_flag_is_one_line(tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    ended = roquet(tmp_path, "console", "-n", "127.0.0.1:1", "--port", "0", *flags)
    assert ended.returncode in (2, 253)
    assert ended.stdout == ""
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr


def test_blocks_of_the_guide_work(tmp_path: Path) -> None:
    """The page's commands as a reader types them, with the addresses of this run (console.md)."""
    blocks = [text for _, text in BLOCK.findall(GUIDE.read_text())]
    start, toml, _, _, _, by_key, rules, several, proxied, calls, export = blocks
    install, run = start.splitlines()
    assert install.startswith("pip install 'roquet-VERSION.whl[console]'")
    hashed = roquet(tmp_path, "console", "--hash-password", given="correct horse\n").stdout
    users = tmp_path / "users.toml"
    users.write_text(toml.replace('"scrypt:..."', f'"{hashed.strip()}"'))
    users.chmod(0o600)
    alerts = tmp_path / "alerts.toml"
    alerts.write_text(rules)
    alerts.chmod(0o600)
    with dev_server(tmp_path, "--no-console") as (namesrv, _):
        add, beside = several.replace("127.0.0.1:9876", namesrv).splitlines()
        assert roquet(tmp_path, *add.split()[1:]).returncode == 0
        running = Running(tmp_path, *beside.split()[1:], "--port", "0", "--alerts", str(alerts))
        _address(running.line())
        assert running.stop() == 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        first, shown = proxied.replace("9091", port).replace("127.0.0.1:9876", namesrv).splitlines()
        proxy = Running(tmp_path, *first.split()[1:], "--grpc-port", "0")
        assert "boot success" in proxy.line()
        running = Running(tmp_path, *shown.split()[1:], "--port", "0")
        (row,) = _of(*_address(running.line()), "/proxies")["rows"]
        assert row["state"] == "ready"
        assert (running.stop(), proxy.stop()) == (0, 0)
        run = run.replace("127.0.0.1:9876", namesrv).removeprefix("roquet ")
        running = Running(tmp_path, *run.split(), "--port", "0", "--users", str(users))
        address, token = _address(running.line())
        enter, look = calls.replace("http://127.0.0.1:8082", address).splitlines()
        session = json.loads(_shell(enter.replace('"..."', f'"{token}"')))["session"]
        assert json.loads(_shell(look.replace("SESSION", session)))["rows"] == []
        person = enter.replace('{"token": "..."}', '{"name": "ana", "password": "correct horse"}')
        assert json.loads(_shell(person))["role"] == "operator"
        by_key = by_key.replace("http://127.0.0.1:8082", address)
        assert "do not sign in at this console" in _shell(by_key), "it is off by default"
        saved = export.replace("http://127.0.0.1:8082", address).replace("SESSION", session)
        assert "there is no group billing" in _shell(saved.partition(" > ")[0])
        assert running.stop() == 0


def test_the_login_file_of_the_guide_lets_accounts_of_the_cluster_in(tmp_path: Path) -> None:
    """The file of the page's section about accounts of the cluster (console.md)."""
    login = tmp_path / "login.toml"
    login.write_text([text for kind, text in BLOCK.findall(GUIDE.read_text()) if kind == "toml"][3])
    login.chmod(0o600)
    assert load(login).cluster == ClusterConfig(role=Role.OPERATOR)


def test_sign_in_by_others_works_as_the_guide_says(tmp_path: Path) -> None:
    """Both files of the page, with the addresses of this run (console.md)."""
    oidc, header = [text for kind, text in BLOCK.findall(GUIDE.read_text()) if kind == "toml"][1:3]
    login = tmp_path / "login.toml"
    with provider() as it, dev_server(tmp_path, "--no-console") as (namesrv, _):
        for given, of_run in (
            ("https://login.example/realms/ops", it.issuer),
            ("https://mq.example", "http://127.0.0.1:1"),
            ('"..."', f'"{SECRET}"'),
            ("10.0.0.2", "127.0.0.1"),
        ):
            oidc, header = oidc.replace(given, of_run), header.replace(given, of_run)
        login.write_text(oidc + header)
        login.chmod(0o600)
        flags = ("-n", namesrv, "--port", "0", "--login", str(login))
        running = Running(tmp_path, "console", *flags)
        address, token = _address(running.line())
        assert (running.line(), token) == (f"Console of {namesrv}; sign in there.", "")
        people = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        # Nobody listens where the page says: the address to come back to is taken by hand.
        with pytest.raises(urllib.error.URLError):
            people.open(address + "/login/oidc", timeout=20)
        back = it.sent_back[-1].replace("http://127.0.0.1:1", address)
        with people.open(back, timeout=20) as answer:
            assert b"Signed in" in answer.read()
        with people.open(address + "/", timeout=20) as answer:
            assert b"oidc:ana <small>operator" in answer.read()
        said = {"X-Forwarded-User": "bo", "X-Forwarded-Groups": "staff"}
        request = urllib.request.Request(address + "/", headers=said)
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert b"proxy:bo <small>viewer" in answer.read()
        assert running.stop() == 0


def _shell(line: str) -> str:
    return subprocess.run(
        shlex.split(line), capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_a_password_is_hashed_for_the_file_of_accounts(tmp_path: Path) -> None:
    ended = roquet(tmp_path, "console", "--hash-password", given="correct horse\n")
    assert ended.returncode == 0
    assert ended.stdout.startswith("scrypt:")
    assert "correct" not in ended.stdout
    short = roquet(tmp_path, "console", "--hash-password", given="x\n")
    assert (short.returncode, "8 to 256 characters" in short.stderr) == (2, True)
