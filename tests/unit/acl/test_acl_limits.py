"""Every limit of accounts and their files, at it and one beyond it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from durable_calls import DurableCalls
from roquet.acl import accounts, addresses, files
from roquet.acl.accounts import Account, Perm, build, check_keys, check_perms, texts
from roquet.acl.addresses import compile_pattern, peer_parts
from roquet.acl.files import AccountFiles, AclConfig, accounts_path
from roquet.acl.guard import Guard
from roquet.acl.needs import topic
from roquet.acl.rights import Caller
from roquet.acl.signature import is_signed, sign
from roquet.base.errors import Refused, UsageError
from roquet.model.data_version import DataVersion
from roquet.protocol.command import Command
from roquet.protocol.names import WAITING_ROOMS
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.acl.accounts import Document


def entry(key: str) -> dict[str, Any]:
    return {"accessKey": key, "secretKey": "12345678"}


def yml(*keys: str) -> bytes:
    lines = [f"- {{accessKey: {key}, secretKey: canary-of-{key}}}" for key in keys]
    return "\n".join(["accounts:", *lines, ""]).encode()


def refused(action: Callable[[], object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        action()


# --- accounts ----------------------------------------------------------------------------------


def test_permissions_of_an_account_are_as_many_as_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "PERMS_MAX", 2)
    assert texts({"topicPerms": ["a=PUB", "b=PUB"]}, "topicPerms") == ["a=PUB", "b=PUB"]
    refused(lambda: texts({"topicPerms": ["a"] * 3}, "topicPerms"), "more than 2 entries")


def test_accounts_of_all_files_are_as_many_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "ACCOUNTS_MAX", 2)
    two: Document = {"accounts": [entry("account1"), entry("account2")]}
    assert len(build({"a": two}).accounts) == 2
    three: Document = {"accounts": [entry("account3")]}
    refused(lambda: build({"a": two, "b": three}), "3 accounts are more than 2")


@pytest.mark.parametrize(("key", "secret"), [(6, 7), (7, 6), (1025, 8), (8, 1025)])
def test_keys_have_7_to_1024_characters(key: int, secret: int) -> None:
    refused(lambda: check_keys("k" * key, "s" * secret), "length|characters")
    check_keys("k" * min(1024, max(7, key)), "s" * min(1024, max(7, secret)))


@pytest.mark.parametrize("text", ["a", "=PUB", " =PUB", "a=PUB=SUB", "a=pub", "a="])
def test_permission_from_a_tool_is_a_name_and_a_known_word(text: str) -> None:
    refused(lambda: check_perms(["b=SUB", text]), "permission")
    check_perms(["b=SUB", "a= PUB|SUB"])


def test_permission_of_a_default_never_means_a_waiting_room() -> None:
    account = Account(access_key="account", secret=b"", default_topic=Perm.BOTH)
    assert not account.admin
    assert account.allows_topic("orders", Perm.SUB)
    for name in WAITING_ROOMS:
        assert not account.allows_topic(name, Perm.SUB)
    named = Account(access_key="account", secret=b"", topics={min(WAITING_ROOMS): Perm.SUB})
    assert named.allows_topic(min(WAITING_ROOMS), Perm.SUB)
    assert not named.allows_topic(min(WAITING_ROOMS), Perm.PUB)


@pytest.mark.parametrize(
    "entry",
    [
        {"topicPerms": ["a=PUB", 7]},
        {"topicPerms": [7, "a=PUB"]},
        {"topicPerms": {"a": "PUB"}},
        {"topicPerms": "a=PUB"},
    ],
)
def test_permissions_are_a_list_of_texts_alone(entry: dict[str, Any]) -> None:
    refused(lambda: texts(entry, "topicPerms"), "list of texts")


@pytest.mark.parametrize("absent", [{}, {"t": None}, {"t": ""}, {"t": "null"}, {"t": "~"}])
def test_permissions_that_are_not_there_are_none(absent: dict[str, Any]) -> None:
    assert texts(absent, "t") == []


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ([{"counter": "2", "timestamp": "70"}], DataVersion(counter=2, timestamp=70)),
        ([{"counter": "2"}, {"counter": "3"}], DataVersion(counter=2)),
        ([], DataVersion()),
        (["text"], DataVersion()),
        ({"counter": "2"}, DataVersion()),
        ("text", DataVersion()),
        (None, DataVersion()),
    ],
)
def test_version_is_the_first_entry_of_a_list(said: object, version: DataVersion) -> None:
    assert accounts.version_of({"dataVersion": said}) == version


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "\u0663", ""])
@pytest.mark.parametrize("name", ["counter", "timestamp"])
def test_version_has_decimal_numbers(name: str, number: str) -> None:
    entry = {"counter": "1", "timestamp": "1", name: number}
    refused(lambda: accounts.version_of({"dataVersion": [entry]}), "has to have numbers")


@pytest.mark.parametrize("white", [["*"], ["10.0.0.1", "*"], ["*", "10.0.0.1"]])
def test_white_list_for_everybody_is_named_wherever_it_stands(white: list[str]) -> None:
    (note,) = build({"a": {"globalWhiteRemoteAddresses": white}}).notes
    assert "everybody may do everything" in note
    assert build({"a": {"globalWhiteRemoteAddresses": ["10.0.0.*"]}}).notes == ()


# --- white lists -------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["10.0.0.1{2,3}", "10.0.0.4}", "fd00::1{2,3}"])
def test_braces_stand_for_a_whole_part(pattern: str) -> None:
    refused(lambda: compile_pattern(pattern), "netaddress is")


def test_pattern_is_as_long_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "LENGTH_MAX", 8)
    assert compile_pattern("10.0.0.1").matches(peer_parts("10.0.0.1:9"))
    refused(lambda: compile_pattern("10.0.0.11"), "has 9 characters")


def test_pattern_has_as_many_addresses_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "ALTERNATIVES_MAX", 2)
    assert compile_pattern("10.0.0.{1,2}").matches(peer_parts("10.0.0.2:9"))
    refused(lambda: compile_pattern("10.0.0.{1,2,3}"), "has 3 addresses")


@pytest.mark.parametrize(
    ("pattern", "address", "inside"),
    [
        ("10.0.0.255", "10.0.0.255:1", True),
        ("10.0.0.5-5", "10.0.0.5:1", True),
        ("10.0.0.5-6", "10.0.0.4:1", False),
        ("10.0.0.5-6", "10.0.0.7:1", False),
        ("10.0.0.*", "10.0.0.255:1", True),
        ("fd00::ffff", "[fd00::ffff]:1", True),
        ("fd00::*", "[fd00::ffff]:1", True),
        ("1:2:3:4:5:6:7::", "[1:2:3:4:5:6:7:0]:1", True),
        ("1:2:3:4:5:6:7:8::", "[1:2:3:4:5:6:7:8]:1", True),
        ("::1", "[::1]:1", True),
        ("::1", "0.0.0.1:1", False),
        ("fe80::1", "[fe80::1%eth0]:1", True),
    ],
)
def test_range_includes_both_its_ends(pattern: str, address: str, *, inside: bool) -> None:
    assert compile_pattern(pattern).matches(peer_parts(address)) == inside


def test_range_ends_at_the_largest_number_of_a_part() -> None:
    refused(lambda: compile_pattern("10.0.0.0-256"), "end is 256")
    refused(lambda: compile_pattern("10.0.0.6-5"), "start is 6 , end is 5")


# --- files -------------------------------------------------------------------------------------


def loaded(folder: Path) -> AccountFiles:
    it = AccountFiles(folder / "plain_acl.yml", FakeClock())
    asyncio.run(it.start())
    return it


def put(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def test_accounts_come_from_yaml_files_of_the_folder_and_never_from_those_of_tools(
    tmp_path: Path,
) -> None:
    put(tmp_path, "plain_acl.yml", yml("account0"))
    put(tmp_path, "acl/one.yml", yml("account1"))
    put(tmp_path, "acl/two.yaml", yml("account2"))
    put(tmp_path, "acl/three.txt", yml("account3"))
    put(tmp_path, "acl/tools.yml", yml("account4"))
    (tmp_path / "acl" / "folder.yml").mkdir()
    assert set(loaded(tmp_path).table.accounts) == {"account0", "account1", "account2"}


def test_accounts_may_all_be_in_the_folder(tmp_path: Path) -> None:
    put(tmp_path, "acl/one.yml", yml("account1"))
    assert set(loaded(tmp_path).table.accounts) == {"account1"}
    refused(lambda: loaded(tmp_path / "acl"), "aclEnable = 'true', but there is no")


def test_main_file_in_the_folder_counts_once(tmp_path: Path) -> None:
    put(tmp_path, "plain_acl.yml", b"")
    put(tmp_path, "acl/one.yml", yml("account1"))
    put(tmp_path, "acl/plain_acl.yml", yml("account2"))
    main = tmp_path / "acl" / "plain_acl.yml"
    (tmp_path / "acl" / "acl").mkdir()
    assert set(AccountFiles(main, FakeClock())._read()) == {main}


def test_files_are_as_many_and_as_long_as_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = yml("account1")
    put(tmp_path, "plain_acl.yml", data)
    put(tmp_path, "acl/one.yml", b"")
    monkeypatch.setattr(files, "FILES_MAX", 2)
    monkeypatch.setattr(files, "FILE_SIZE_MAX", len(data))
    assert set(loaded(tmp_path).table.accounts) == {"account1"}
    monkeypatch.setattr(files, "FILE_SIZE_MAX", len(data) - 1)
    refused(lambda: loaded(tmp_path), "is larger than")
    monkeypatch.setattr(files, "FILE_SIZE_MAX", len(data))
    put(tmp_path, "acl/two.yml", b"")
    refused(lambda: loaded(tmp_path), "3 files are more than 2")


def test_change_of_a_file_is_used_at_once_and_told_once(tmp_path: Path) -> None:
    put(tmp_path, "plain_acl.yml", yml("account1"))
    (tmp_path / "plain_acl.yml").chmod(0o640)
    told: list[int] = []

    async def run() -> None:
        it = AccountFiles(tmp_path / "plain_acl.yml", FakeClock())
        it.listen(lambda: told.append(len(it.table.accounts)))
        await it.start()
        assert told == [1]
        await it.look()
        assert told == [1], "nothing has changed"
        await it.change(None, lambda document: document["accounts"].append(entry("account2")))
        assert told == [1, 2]
        await it.look()
        assert told == [1, 2]
        # What cannot be read again is not written.
        before = it.main.read_bytes()
        with pytest.raises(UsageError):
            await it.change(None, lambda document: document["accounts"].append(entry("short")))
        assert (it.main.read_bytes(), told) == (before, [1, 2])
        assert it.main.stat().st_mode & 0o777 == 0o640
        version = it.table.versions[str(it.main)]
        assert version.counter == 1
        await it.change(tmp_path / "new.yml", lambda document: document.update(accounts=[]))
        assert (tmp_path / "new.yml").stat().st_mode & 0o777 == 0o600
        # A file that goes bad, or goes, leaves the accounts as they are.
        it.main.write_bytes(b"accounts: 7")
        await it.look()
        assert (set(it.table.accounts), told) == ({"account1", "account2"}, [1, 2])
        it.main.unlink()
        await it.look()
        assert (set(it.table.accounts), told) == ({"account1", "account2"}, [1, 2])

    asyncio.run(run())


def test_file_that_takes_another_name_is_used_under_it(tmp_path: Path) -> None:
    put(tmp_path, "acl/one.yml", yml("account1"))

    async def run() -> None:
        it = AccountFiles(tmp_path / "plain_acl.yml", FakeClock())
        await it.start()
        (tmp_path / "acl" / "one.yml").rename(tmp_path / "acl" / "two.yml")
        await it.look()
        assert it.table.homes == {"account1": str(tmp_path / "acl" / "two.yml")}

    asyncio.run(run())


def test_file_that_cannot_be_used_is_complained_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "plain_acl.yml", yml("account1"))

    async def run() -> None:
        it = AccountFiles(tmp_path / "plain_acl.yml", FakeClock())
        await it.start()
        it.main.write_bytes(b"accounts: 7")
        for _ in range(3):
            await it.look()

    asyncio.run(run())
    assert caplog.text.count("accounts stay as they were") == 1


def test_folder_without_any_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    refused(lambda: loaded(tmp_path), "there is no")


def test_changed_file_is_synced_then_named_then_its_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "plain_acl.yml", yml("account1"))
    # What a broken-off change left behind is in nobody's way.
    put(tmp_path, "plain_acl.yml.tmp", b"half of")
    it = loaded(tmp_path)
    calls = DurableCalls(monkeypatch)
    asyncio.run(it.change(None, lambda document: document["accounts"].append(entry("account2"))))
    assert calls.made == [
        ("sync", "plain_acl.yml.tmp"),
        ("name", "plain_acl.yml"),
        ("sync", tmp_path.name),
    ]
    assert set(loaded(tmp_path).table.accounts) == {"account1", "account2"}


@pytest.mark.parametrize(
    ("rules", "beside", "path"),
    [
        ({"file": "/etc/acl.yml", "home": "/srv"}, "/conf/broker.conf", "/etc/acl.yml"),
        ({"home": "/srv"}, "/conf/broker.conf", "/srv/conf/plain_acl.yml"),
        ({"home": "/srv", "file": "a/b.yml"}, None, "/srv/a/b.yml"),
        ({}, "/conf/broker.conf", "/conf/plain_acl.yml"),
        ({"file": "a/b.yml"}, "/conf/broker.conf", "/conf/b.yml"),
    ],
)
def test_accounts_are_below_the_home_or_beside_the_settings(
    rules: dict[str, Any], beside: str | None, path: str
) -> None:
    found = accounts_path(AclConfig(**rules), None if beside is None else Path(beside))
    assert found == Path(path)
    refused(lambda: accounts_path(AclConfig(), None), "needs rocketmq.acl.plain.file")


def test_file_that_cannot_be_read_stops_the_start_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "plain_acl.yml", yml("account1"))

    def fails(_self: AccountFiles) -> None:
        raise PermissionError(13, "Permission denied", "plain_acl.yml")

    monkeypatch.setattr(AccountFiles, "_load", fails)
    refused(lambda: loaded(tmp_path), "plain_acl.yml: Permission denied")


# --- rights by the accounts in force -------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "address", "said"),
    [
        ("account1", "9.9.9.9:1", ""),
        ("account1", "10.0.0.1:1", ""),
        ("", "10.0.0.1:1", ""),
        ("gone", "10.0.0.1:1", ""),
        ("", "9.9.9.9:1", "No accessKey is configured"),
        ("gone", "9.9.9.9:1", "No accessKey is configured"),
        ("account2", "9.9.9.9:1", "No default permission for topic:orders"),
    ],
)
def test_rights_are_asked_of_the_accounts_in_force(key: str, address: str, said: str) -> None:
    one = {**entry("account1"), "topicPerms": ["orders=SUB"]}
    table = build(
        {"a": {"accounts": [one, entry("account2")], "globalWhiteRemoteAddresses": ["10.0.0.1"]}}
    )
    guard = Guard(cast("Any", SimpleNamespace(table=table)), lambda _command: ())
    caller = Caller(key, address)
    needs = [topic("orders", Perm.SUB)]
    assert guard.has(caller, needs) is (said == "")
    if said:
        with pytest.raises(Refused, match=said):
            guard.require(caller, needs)
    else:
        guard.require(caller, needs)


# --- signatures --------------------------------------------------------------------------------


def test_signed_request_that_is_signed_again_is_signed_by_the_last_one_alone() -> None:
    plain = Command(310, {"b": "orders"}, b"body")
    twice = sign(sign(plain, "account1", b"secret1"), "account2", b"secret2")
    assert twice == sign(plain, "account2", b"secret2")
    assert plain.ext == {"b": "orders"}
    assert is_signed(twice, b"secret2")
    assert not is_signed(twice, b"secret1")
