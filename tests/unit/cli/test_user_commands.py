"""`roquet user` and `roquet acl` with users of 5.x, against a broker that asks for them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli_harness import Running
from cli_shell import Shell
from roquet.testing.cluster import TINY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PASSWORD = "canary-of-root"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Return the name server of a broker with users."""
    started = [Running(tmp_path, "namesrv", "-s", "listenPort=0")]
    try:
        booted = started[0].lines_until("boot success")[-1]
        address = booted.split("address ")[1].split(",")[0].strip()
        settings = {
            **TINY,
            "listenPort": "0",
            "haListenPort": "0",
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": address,
            "storePathRootDir": str(tmp_path / "store"),
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "initAuthenticationUser": json.dumps({"username": "root", "password": PASSWORD}),
        }
        file = tmp_path / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        started.append(Running(tmp_path, "broker", "-c", str(file)))
        started[1].lines_until("boot success")
        yield address
    finally:
        assert [one.stop() for one in reversed(started)] == [0] * len(started)


@pytest.fixture
def people(address: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Shell]:
    """Return what makes a shell of root or of ann."""
    keys = {"root": PASSWORD, "ann": "password-of-ann"}

    def shell_of(name: str) -> Shell:
        monkeypatch.setenv("ROQUET_ACCESS_KEY", name)
        monkeypatch.setenv("ROQUET_SECRET_KEY", keys[name])
        return Shell(address)

    return shell_of


def make_ann(shell: Shell, folder: Path) -> None:
    secret = folder / "secret"
    secret.write_text("password-of-ann\n")
    shell("user", "create", "ann", "--password-file", str(secret))


def test_user_is_made_given_rights_and_shown(
    people: Callable[[str], Shell], tmp_path: Path
) -> None:
    root = people("root")
    make_ann(root, tmp_path)
    assert (root.code, root.err) == (0, "")
    ann = people("ann")
    ann("pub", "orders", "x")
    assert ann.code == 1
    assert "User:ann has no permission to access Topic:orders" in ann.err
    make_ann(ann, tmp_path)
    assert (ann.code, "no permission to access Cluster" in ann.err) == (1, True), ann.err

    root = people("root")
    grant = ("acl", "grant", "ann", "Topic:orders", "Group:g*", "--actions", "Pub,Sub")
    root(*grant)
    assert root.code == 2  # it asks
    root(*grant, "--from", "127.0.0.1", "-y")
    assert root.code == 0, root.err
    rows = [
        (it["user"], it["resource"], it["actions"], it["decision"], it["from"], it["policy"])
        for it in root.rows("acl", "ls", "ann")
    ]
    row = ("Pub Sub", "Allow", "127.0.0.1", "Custom")
    assert rows == [("ann", "Topic:orders", *row), ("ann", "Group:g*", *row)]
    (user,) = root.rows("user", "show", "ann")
    assert (user["user"], user["type"], user["status"]) == ("ann", "Normal", "enable")
    assert "canary" not in root("user", "show")

    # The topic is there, made by who may.
    root("pub", "orders", "x")
    ann = people("ann")
    ann("pub", "orders", "x")
    assert ann.code == 0, ann.err


def test_what_a_user_has_is_changed_and_taken_away(
    people: Callable[[str], Shell], tmp_path: Path
) -> None:
    root = people("root")
    make_ann(root, tmp_path)
    root("acl", "grant", "ann", "Topic:orders", "--actions", "All", "--deny", "--default", "-y")
    root("acl", "grant", "ann", "Topic:a", "Group:g", "--actions", "Pub", "-y")
    assert root.code == 0, root.err
    found = [(it["resource"], it["decision"], it["policy"]) for it in root.rows("acl", "ls", "ann")]
    assert ("Topic:orders", "Deny", "Default") in found
    assert len(found) == 3
    root("user", "alter", "ann", "--status", "disable", "-y")
    assert root.rows("user", "show", "ann")[0]["status"] == "disable"
    root("acl", "revoke", "ann", "Topic:a", "-y")
    assert [it["resource"] for it in root.rows("acl", "ls")] == ["Topic:orders", "Group:g"]
    root("acl", "revoke", "ann", "-y")
    assert root.rows("acl", "ls") == []
    root("user", "delete", "ann", "-y")
    root("user", "show", "ann")
    assert root.code == 5
    root("user", "alter", "ann", "--status", "enable", "-y")
    assert (root.code, "not exist" in root.err) == (1, True), root.err


def test_commands_of_the_guide_work(people: Callable[[str], Shell], tmp_path: Path) -> None:
    guide = Path(__file__).parents[3] / "docs/guide/users-and-policies.md"
    lines = re.findall(r"^roquet (.*)$", guide.read_text(), re.MULTILINE)
    assert len(lines) == 3
    secret = tmp_path / "secret"
    secret.write_text("password-of-ann\n")
    root = people("root")
    shown = ""
    for line in lines:
        words = shlex.split(line.replace("/etc/roquet/ann", str(secret)))
        shown = root(*words, *(["-y"] if words[1] == "grant" else []))
        assert root.code == 0, root.err
    assert shown.count("Pub Sub") == 2
