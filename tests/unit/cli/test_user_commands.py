"""`roquet user` and `roquet acl` with users of 5.x, against a broker that asks for them."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli_harness import Running, cluster_of, with_users
from cli_shell import Shell
from roquet.testing.cluster import TINY

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

PASSWORD = "canary-of-root"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Return the name server of a broker with users."""
    with cluster_of(tmp_path, **with_users(PASSWORD)) as found:
        yield found


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
    root("user", "delete", "ann", "-y")
    assert (root.code, "no broker has a user 'ann'" in root.err) == (5, True), root.err
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


def test_users_of_another_broker_are_made_and_what_cannot_be_had_is_said(
    people: Callable[[str], Shell], tmp_path: Path
) -> None:
    settings = tmp_path / "broker.conf"
    text = settings.read_text().replace(str(tmp_path / "store"), str(tmp_path / "second-store"))
    (tmp_path / "second.conf").write_text(text + "brokerName=second\n")
    root = people("root")
    make_ann(root, tmp_path)
    root("acl", "grant", "ann", "Topic:orders", "Group:g*", "--actions", "Pub,Sub", "-y")
    root("acl", "grant", "ann", "Topic:*", "--actions", "All", "--deny", "--default", "-y")
    (row,) = root.rows("broker", "ls")
    source = row["address"]
    second = Running(tmp_path, "broker", "-c", str(tmp_path / "second.conf"))
    try:
        second.lines_until("boot success")
        shown = root("auth", "import", source, "-y")
        done = f"{source}: 2 users, 1 there already, 0 things not had\n"
        assert (root.code, root.err, shown) == (0, "", done)
        # The same broker under its host's name is not told of itself.
        named = source.replace("127.0.0.1", "localhost")
        again = root("auth", "import", named, "-y")
        done = f"{named}: 2 users, 2 there already, 0 things not had\n"
        assert (root.code, root.err, again) == (0, "", done)
        address_of = {it["broker"]: it["address"] for it in root.rows("broker", "ls")}
        changed = ("mqadmin", "updateUser", "-b", address_of["second"], "-u", "ann")
        root(*changed, "-s", "disable")
        assert root.code == 0, root.err
        shown = root("auth", "import", source, "-y")
        lost = "not had: ann: second has another such user, who stays as it is there"
        assert (root.code, lost in shown) == (3, True), (shown, root.err)
        root(*changed, "-s", "enable")
        assert PASSWORD not in shown
        first, second_rows = (
            [{**it, "broker": ""} for it in root.rows("acl", "ls") if it["broker"] == name]
            for name in (row["broker"], "second")
        )
        assert first == second_rows
        assert len(first) == 3
        users = [it["user"] for it in root.rows("user", "show") if it["broker"] == "second"]
        assert users == ["ann", "root"]
        ann = people("ann")
        ann("auth", "import", source, "-y")
        assert (ann.code, "no permission" in ann.err) == (1, True), ann.err
    finally:
        second.stop()


def test_mqadmin_signs_with_the_keys_of_javas_tools(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(address)
    for name in ("ROQUET_ACCESS_KEY", "ROQUET_SECRET_KEY", "ROCKETMQ_HOME"):
        monkeypatch.delenv(name, raising=False)
    words = ("mqadmin", "listUser", "-c", "DefaultCluster")
    assert run_of(shell, words)[1] != 0
    home = tmp_path / "rocketmq"
    (home / "conf").mkdir(parents=True)
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    # Without the file nothing is signed.
    assert run_of(shell, words)[1] != 0
    keys = home / "conf" / "tools.yml"
    keys.write_text(f"accessKey: root\nsecretKey: {PASSWORD}\n")
    keys.chmod(0o600)
    shown, code = run_of(shell, words)
    assert (code, "root" in shown, shell.err) == (0, True, "")
    # As RocketMQ ships it, others may read it: it counts, and a line says so.
    keys.chmod(0o644)
    assert run_of(shell, words)[1] == 0
    assert f"{keys} may be read by others: it needs chmod 600" in shell.err
    # What the environment says goes before, even if it is wrong.
    monkeypatch.setenv("ROQUET_ACCESS_KEY", "root")
    monkeypatch.setenv("ROQUET_SECRET_KEY", "not-the-password")
    assert run_of(shell, words)[1] != 0


def run_of(shell: Shell, words: tuple[str, ...]) -> tuple[str, int]:
    shown = shell(*words)
    assert PASSWORD not in shell.err
    return shown, shell.code


def test_password_file_that_cannot_be_read_is_named_by_its_flag(
    people: Callable[[str], Shell], tmp_path: Path
) -> None:
    root = people("root")
    for words in (("create", "x"), ("alter", "root")):
        root("user", *words, "--password-file", str(tmp_path / "nope"))
        assert (root.code, "--password-file: it cannot be read" in root.err) == (2, True), root.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("Topic:a", "--actions", "Pub,Sob"), "actions: 'Sob' is none of All, Pub, Sub"),
        (("Topic:a", "--actions", "Any"), "actions: 'Any' is none of All"),
        (("Topik:a", "--actions", "Pub"), "'Topik:a' should look like Topic:orders"),
        (("orders", "--actions", "Pub"), "'orders' should look like Topic:orders"),
        (("Group:", "--actions", "Sub"), "'Group:' should look like Topic:orders"),
        (("*", "--actions", "Sub", "--from", "10.0.0"), "from: '10.0.0' should be an IP address"),
    ],
)
def test_grant_checks_its_words_before_it_asks(
    people: Callable[[str], Shell], words: tuple[str, ...], text: str
) -> None:
    root = people("root")
    # Without --yes and a terminal it would end by asking.
    root("acl", "grant", "ann", *words)
    assert (root.code, text in root.err) == (2, True), root.err


def test_import_from_an_address_without_a_port_says_how_one_looks(
    people: Callable[[str], Shell],
) -> None:
    root = people("root")
    root("auth", "import", "10.0.0.7", "-y")
    text = "'10.0.0.7' is not host:port: a broker's address looks like 10.0.0.7:10911"
    assert (root.code, root.err) == (2, f"roquet: {text}\n")


def test_change_without_a_master_says_that_slaves_lose_it_and_ends_with_3(
    people: Callable[[str], Shell], tmp_path: Path
) -> None:
    settings = (tmp_path / "broker.conf").read_text()
    text = settings.replace(str(tmp_path / "store"), str(tmp_path / "slave-store"))
    own = text + "brokerName=lonely\nbrokerRole=SLAVE\nbrokerId=1\n"
    (tmp_path / "slave.conf").write_text(own)
    slave = Running(tmp_path, "broker", "-c", str(tmp_path / "slave.conf"))
    try:
        slave.lines_until("boot success")
        root = people("root")
        make_ann(root, tmp_path)
        lost = "lonely has no master now: its slaves alone are told, and lose the change"
        assert (root.code, lost in root.err) == (3, True), root.err
        shown = root("acl", "grant", "ann", "Topic:orders", "--actions", "Pub", "-y")
        assert (root.code, lost in root.err, shown != "") == (3, True, True), root.err
        for words in (("user", "show"), ("acl", "ls")):
            shown = root(*words)
            assert (root.code, "ann" in shown) == (3, True)
            assert root.err == "roquet: lonely is left out: has no master now\n"
        shown = root("user", "delete", "ann", "-y")
        assert root.code == 3
        assert "ann: deleted on every broker but lonely" in shown
    finally:
        slave.stop()


def test_name_server_with_users_is_told_of_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with guarded_cluster(tmp_path) as address:
        monkeypatch.setenv("ROQUET_ACCESS_KEY", "root")
        monkeypatch.setenv("ROQUET_SECRET_KEY", PASSWORD)
        root = Shell(address)
        make_ann(root, tmp_path)
        assert (root.code, root.err) == (0, "")
        root("acl", "grant", "ann", "Topic:orders", "--actions", "Pub", "-y")
        of_server = f"name server {address}"
        assert [it["broker"] for it in root.rows("user", "show", "ann")][1:] == [of_server]
        assert [(it["broker"], it["resource"]) for it in root.rows("acl", "ls", "ann")][1:] == [
            (of_server, "Topic:orders")
        ]
        shown = root("user", "alter", "ann", "--status", "disable", "-y")
        assert (root.code, shown) == (0, "ann: changed on every broker and name server\n")
        assert [it["status"] for it in root.rows("user", "show", "ann")] == ["disable"] * 2
        root("acl", "revoke", "ann", "-y")
        assert root.rows("acl", "ls", "ann") == []
        # What a broker has is brought to a name server that lost it.
        (row, _) = root.rows("user", "show", "ann")
        broker = root.rows("broker", "ls")[0]["address"]
        root("mqadmin", "deleteUser", "-b", address, "-u", "ann")
        assert [it["broker"] for it in root.rows("user", "show", "ann")] == [row["broker"]]
        shown = root("auth", "import", broker, "-y")
        assert (root.code, shown) == (0, f"{broker}: 2 users, 1 there already, 0 things not had\n")
        assert len(root.rows("user", "show", "ann")) == 2
        # A second name server that is away does not hear of it, and the command says so.
        gone = f"{address};127.0.0.1:1"
        shown = Shell(gone)("user", "delete", "ann", "-y")
        root("user", "show", "ann")
        assert root.code == 5, root.err
        away = Shell(gone)
        make_ann(away, tmp_path)
        text = "name server at 127.0.0.1:1 does not answer, so it is not told"
        assert (away.code, text in away.err) == (3, True), away.err
        away("user", "show")
        assert (away.code, "name server 127.0.0.1:1 is left out" in away.err) == (3, True), away.err


@contextlib.contextmanager
def guarded_cluster(home: Path) -> Generator[str]:
    """Run a name server and a broker that ask for users; `root` is one of both."""
    inner = json.dumps({"accessKey": "root", "secretKey": PASSWORD})
    asks = {**with_users(PASSWORD), "innerClientAuthenticationCredentials": inner}
    own = {**asks, "listenPort": "0", "kvConfigPath": str(home / "kv.json")}
    file = home / "namesrv.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
    server = Running(home, "namesrv", "-c", str(file))
    try:
        booted = server.lines_until("boot success")[-1]
        address = booted.split("address ")[1].split(",")[0].strip()
        settings = {
            **TINY,
            **asks,
            "listenPort": "0",
            "haListenPort": "0",
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": address,
            "storePathRootDir": str(home / "store"),
        }
        file = home / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        broker = Running(home, "broker", "-c", str(file))
        try:
            broker.lines_until("boot success")
            yield address
        finally:
            assert broker.stop() == 0
    finally:
        assert server.stop() == 0
