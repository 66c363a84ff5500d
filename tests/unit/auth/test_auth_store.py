"""The file of users and policies: whole or not at all, and never a damaged one for an empty one."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import TYPE_CHECKING

import pytest

from roquet.auth.bodies import read_acl
from roquet.auth.directory import AuthFault, Directory, UserChange
from roquet.auth.keeping.store import MAGIC, NAME, AuthFile, decode, encode
from roquet.auth.keeping.users import Users, super_user
from roquet.auth.model import UserStatus, UserType
from roquet.base.errors import Corrupt, UsageError

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "canary-password"


def policies(resource: str = "Topic:orders", decision: str = "Allow") -> bytes:
    entry = {"resource": resource, "actions": ["Pub"], "sourceIps": ["10.0.0.0/8"]}
    one = {"policyType": "Custom", "entries": [{**entry, "decision": decision}]}
    return json.dumps({"subject": "User:ann", "policies": [one]}).encode()


def directory() -> Directory:
    made = Directory().with_user(UserChange("ann", f"{CANARY} ä", UserType.NORMAL))
    made = made.with_user(UserChange("root", "r", UserType.SUPER, UserStatus.DISABLE))
    return made.with_policies("ann", read_acl(policies())[1])


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = AuthFile(tmp_path / "config" / NAME)
    assert file.load() is None
    file.save(directory())
    assert file.load() == directory()
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == [NAME]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data + b" ",
        lambda data: data.replace(b"Allow", b"Deny "),
        lambda data: data[: len(MAGIC)],
        lambda _: b"",
        lambda data: data.replace(b"roquet-auth 1", b"roquet-auth 2"),
        lambda data: data.replace(b"\n", b"", 1),
    ],
)
def test_damaged_file_is_refused_without_a_word_of_it(tmp_path: Path, spoil: object) -> None:
    file = AuthFile(tmp_path / NAME)
    assert callable(spoil)
    damaged = spoil(encode(directory()))
    file.path.write_bytes(damaged)
    with pytest.raises(Corrupt) as caught:
        asyncio.run(Users(file).start())
    assert str(file.path) in str(caught.value)
    assert CANARY not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert file.path.read_bytes() == damaged


def test_content_with_a_good_checksum_that_is_none_is_refused() -> None:
    for body in (b"{}x", b"[]", b'{"users":[{"username":""}]}', b'{"acls":[{"subject":"User:a"}]}'):
        data = b"%s %08x %d\n%s" % (MAGIC, zlib.crc32(body), len(body), body)
        with pytest.raises(ValueError, match="its content can not be read"):
            decode(data)


def test_change_is_in_force_when_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AuthFile(tmp_path / NAME)
    users = Users(file, [super_user(("root", "secret"))])
    written: list[int] = []
    save = file.save

    def noted(directory: Directory) -> None:
        assert users.now.version < directory.version
        save(directory)
        written.append(directory.version)

    monkeypatch.setattr(file, "save", noted)
    heard: list[int] = []
    users.listen(lambda: heard.append(users.now.version))

    async def run() -> None:
        await users.start()
        await users.change(lambda it: it.with_user(UserChange("ann", "p")))
        with pytest.raises(AuthFault, match="The user is existed"):
            await users.change(lambda it: it.with_user(UserChange("ann", "p")))

    asyncio.run(run())
    assert heard == written == [1, 2]
    again = Users(AuthFile(tmp_path / NAME), [super_user(("root", "another"))])
    asyncio.run(again.start())
    assert again.now == users.now
    assert again.now.users["root"].password == "secret"


def test_change_that_can_not_be_written_is_not_in_force(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    users = Users(AuthFile(folder / NAME))

    async def run() -> None:
        await users.start()
        folder.write_text("a file where the folder should be")
        with pytest.raises(OSError, match="config"):
            await users.change(lambda it: it.with_user(UserChange("ann", "p")))

    asyncio.run(run())
    assert users.now == Directory()


def test_start_with_users_that_can_not_be_made_says_why(tmp_path: Path) -> None:
    users = Users(AuthFile(tmp_path / NAME), [super_user(("n" * 256, "p"))])
    with pytest.raises(UsageError, match="users cannot be made at the start: The username"):
        asyncio.run(users.start())


def test_no_text_of_a_user_has_the_password() -> None:
    made = directory()
    assert CANARY not in repr(made)
    assert CANARY not in repr(UserChange("a", CANARY))


def test_start_warns_of_a_super_user_that_comes_back_and_of_no_user_at_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = AuthFile(tmp_path / NAME)
    asyncio.run(Users(file).start())
    assert "nobody can get in: set initAuthenticationUser" in caplog.text
    assert "users of RocketMQ" not in caplog.text
    caplog.clear()
    asyncio.run(Users(file, [super_user(("root", "p"))]).start())
    assert caplog.text == ""
    file.save(Directory().with_user(UserChange("ann", "p")))
    asyncio.run(Users(file, [super_user(("root", CANARY))]).start())
    assert "User:root was made at the start with type Super beside 1 other users" in caplog.text
    assert CANARY not in caplog.text


def test_start_beside_users_of_rocketmq_says_that_they_are_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "CURRENT").write_text("MANIFEST-000001\n")
    file = AuthFile(tmp_path / NAME)
    root = super_user(("root", "p"))
    asyncio.run(Users(file, [root]).start())
    said = f"{tmp_path / 'users'} has users of RocketMQ that cannot be read here"
    assert said in caplog.text
    caplog.clear()
    asyncio.run(Users(file, [root]).start())
    assert said not in caplog.text
