"""What administrators' tools ask for and change, by the document that is written."""

from __future__ import annotations

import asyncio
import json
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.acl.documents import read_document
from roquet.acl.files import AccountFiles
from roquet.acl.tools import DELETE_FAILED, UPDATE_FAILED, WHITE_LIST_FAILED, AclTools
from roquet.base.errors import Refused
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

NOW_MS = 1_700_000_000_000
MAIN = b"""
accounts:
- {accessKey: account1, secretKey: secret-1, topicPerms: [a=PUB], note: kept}
- {accessKey: account2, secretKey: secret-2}
globalWhiteRemoteAddresses: [10.0.0.1]
"""
MORE = b"accounts:\n- {accessKey: account3, secretKey: secret-3, admin: true}\n"
NEW = {"accessKey": "account9", "secretKey": "secret-9"}


class World:
    """Two files of accounts, and the tools beside them."""

    def __init__(self, folder: Path) -> None:
        self.main, self.more = folder / "plain_acl.yml", folder / "acl" / "more.yml"
        self.more.parent.mkdir()
        self.main.write_bytes(MAIN)
        self.more.write_bytes(MORE)
        self.files = AccountFiles(self.main, FakeClock(NOW_MS))
        identity = SimpleNamespace(cluster="cluster", name="broker", address="1.2.3.4:10911")
        self.tools = AclTools(self.files, cast("Any", identity))

    def do(self, action: Callable[[AclTools], Awaitable[None]]) -> None:
        async def run() -> None:
            await self.files.start()
            await action(self.tools)

        asyncio.run(run())

    def written(self) -> tuple[Any, Any]:
        """Return both documents without their versions."""
        documents = [read_document(it.read_bytes()) for it in (self.main, self.more)]
        for each in documents:
            each.pop("dataVersion", None)
        return documents[0], documents[1]


FIRST = {"accessKey": "account1", "secretKey": "secret-1", "topicPerms": ["a=PUB"], "note": "kept"}
SECOND = {"accessKey": "account2", "secretKey": "secret-2"}
THIRD = {"accessKey": "account3", "secretKey": "secret-3", "admin": "true"}
WHITE = {"globalWhiteRemoteAddresses": ["10.0.0.1"]}


@pytest.mark.parametrize(
    ("asked", "entry"),
    [
        ({}, {"admin": "false"}),
        ({"admin": "TRUE"}, {"admin": "true"}),
        ({"admin": "yes"}, {"admin": "false"}),
        (
            {"topicPerms": "a=PUB, ,b=SUB ,", "groupPerms": "g=SUB"},
            {"admin": "false", "topicPerms": ["a=PUB", "b=SUB"], "groupPerms": ["g=SUB"]},
        ),
        (
            {"defaultTopicPerm": "PUB", "defaultGroupPerm": "SUB"},
            {"admin": "false", "defaultTopicPerm": "PUB", "defaultGroupPerm": "SUB"},
        ),
        ({"defaultTopicPerm": "", "topicPerms": ""}, {"admin": "false"}),
        (
            {"whiteRemoteAddress": "10.0.0.*"},
            {"admin": "false", "whiteRemoteAddress": "10.0.0.*"},
        ),
        ({"whiteRemoteAddress": ""}, {"admin": "false", "whiteRemoteAddress": ""}),
    ],
)
def test_new_account_is_added_to_the_main_file(
    tmp_path: Path, asked: dict[str, str], entry: dict[str, Any]
) -> None:
    world = World(tmp_path)
    world.do(lambda tools: tools.update({**NEW, **asked}))
    main, more = world.written()
    assert main == {"accounts": [FIRST, SECOND, {**NEW, **entry}], **WHITE}
    assert more == {"accounts": [THIRD]}
    assert set(world.files.table.accounts) == {"account1", "account2", "account3", "account9"}


def test_known_account_is_changed_where_it_is_and_keeps_what_is_not_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.do(lambda tools: tools.update({"accessKey": "account1", "secretKey": "changed-1"}))
    main, more = world.written()
    changed = {**FIRST, "secretKey": "changed-1", "admin": "false"}
    assert main == {"accounts": [SECOND, changed], **WHITE}
    assert more == {"accounts": [THIRD]}
    world.do(lambda tools: tools.update({"accessKey": "account3", "secretKey": "changed-3"}))
    assert world.written()[0] == main
    assert world.written()[1] == {
        "accounts": [{"accessKey": "account3", "secretKey": "changed-3", "admin": "false"}]
    }


def test_deleted_account_leaves_its_file_and_the_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.do(lambda tools: tools.delete({"accessKey": "account3"}))
    main, more = world.written()
    assert (main["accounts"], more["accounts"]) == ([FIRST, SECOND], [])
    world.do(lambda tools: tools.delete({"accessKey": "account1"}))
    assert world.written()[0]["accounts"] == [SECOND]
    assert set(world.files.table.accounts) == {"account2"}


@pytest.mark.parametrize(
    ("given", "white"),
    [
        ("10.9.*.*, ,fd00::1 ", ["10.9.*.*", "fd00::1"]),
        ("", []),
    ],
)
@pytest.mark.parametrize("named", ["", "main", "more"])
def test_white_list_is_replaced_in_the_file_that_is_named(
    tmp_path: Path, given: str, white: list[str], named: str
) -> None:
    world = World(tmp_path)
    file = str(getattr(world, named)) if named else ""
    asked = {"globalWhiteAddrs": given, "aclFileFullPath": file}
    world.do(lambda tools: tools.replace_white_list(asked))
    main, more = world.written()
    in_more = named == "more"
    assert main["globalWhiteRemoteAddresses"] == (["10.0.0.1"] if in_more else white)
    assert more.get("globalWhiteRemoteAddresses") == (white if in_more else None)


UNKNOWN = "k" * 70
REFUSALS: list[tuple[Callable[[AclTools], Awaitable[None]], int, str]] = [
    (lambda it: it.update({**NEW, "secretKey": "short"}), UPDATE_FAILED, "The accessKey="),
    (lambda it: it.update({"secretKey": "secret-9"}), UPDATE_FAILED, "The accessKey="),
    (
        lambda it: it.update({**NEW, "topicPerms": "a"}),
        UPDATE_FAILED,
        "Parse resource permission error for a",
    ),
    (
        lambda it: it.update({**NEW, "groupPerms": "a=X"}),
        UPDATE_FAILED,
        "Parse resource permission error for a=X",
    ),
    (
        lambda it: it.update({**NEW, "whiteRemoteAddress": "1.2"}),
        UPDATE_FAILED,
        "Netaddress examine",
    ),
    (lambda it: it.delete({}), DELETE_FAILED, r"The accesskey\[\]"),
    (lambda it: it.delete({"accessKey": UNKNOWN}), DELETE_FAILED, r"The accesskey\[k{64}\]"),
    (
        lambda it: it.replace_white_list({"globalWhiteAddrs": "10.0.0.1,1.2"}),
        WHITE_LIST_FAILED,
        "Netaddress examine",
    ),
    (
        lambda it: it.replace_white_list({"aclFileFullPath": "/etc/" + "p" * 300}),
        WHITE_LIST_FAILED,
        "/etc/p{195} is no file",
    ),
]


@pytest.mark.parametrize(("action", "code", "said"), REFUSALS)
def test_bad_change_is_refused_with_its_code_and_changes_nothing(
    tmp_path: Path, action: Callable[[AclTools], Awaitable[None]], code: int, said: str
) -> None:
    world = World(tmp_path)
    before = world.main.read_bytes(), world.more.read_bytes()
    with pytest.raises(Refused) as caught:
        world.do(action)
    assert caught.value.code == code
    # Tools show the remark as it is: it begins with Java's words, not with the name of a file.
    assert re.match(said, caught.value.remark)
    assert (world.main.read_bytes(), world.more.read_bytes()) == before


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (lambda it: it.update(dict(NEW)), UPDATE_FAILED),
        (lambda it: it.delete({"accessKey": "account1"}), DELETE_FAILED),
        (lambda it: it.replace_white_list({"globalWhiteAddrs": "1.2.3.4"}), WHITE_LIST_FAILED),
    ],
)
def test_change_that_cannot_be_written_is_refused(
    tmp_path: Path, action: Callable[[AclTools], Awaitable[None]], code: int
) -> None:
    world = World(tmp_path)
    (tmp_path / "plain_acl.yml.tmp").mkdir()
    with pytest.raises(Refused) as caught:
        world.do(action)
    assert caught.value.code == code


def test_versions_are_those_of_all_files(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.do(lambda tools: tools.update(dict(NEW)))
    found = world.tools.versions()
    own, every = json.loads(found["version"]), json.loads(found["allAclFileVersion"])
    assert (own["counter"], own["timestamp"]) == (1, NOW_MS)
    assert every[str(world.main)] == own
    assert every[str(world.more)]["counter"] == 0
    names = [found[name] for name in ("brokerName", "brokerAddr", "clusterName")]
    assert names == ["broker", "1.2.3.4:10911", "cluster"]
    world.main.unlink()
    world.do(lambda _tools: world.files.look())
    assert json.loads(world.tools.versions()["version"])["counter"] == 0


def test_accounts_are_shown_without_their_secrets(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.do(
        lambda tools: tools.update(
            {
                **NEW,
                "topicPerms": "a=PUB,b=DENY",
                "groupPerms": "g=PUB|SUB",
                "defaultTopicPerm": "SUB",
                "whiteRemoteAddress": "10.0.0.*",
            }
        )
    )
    shown = json.loads(world.tools.show())
    assert shown["globalWhiteAddrs"] == ["10.0.0.1"]
    by_key = {it["accessKey"]: it for it in shown["plainAccessConfigs"]}
    assert set(by_key) == {"account1", "account2", "account3", "account9"}
    assert by_key["account3"]["admin"] is True
    assert by_key["account9"] == {
        "accessKey": "account9",
        "admin": False,
        "defaultGroupPerm": "DENY",
        "defaultTopicPerm": "SUB",
        "groupPerms": ["g=PUB|SUB"],
        "secretKey": "******",
        "topicPerms": ["a=PUB", "b=DENY"],
        "whiteRemoteAddress": "10.0.0.*",
    }
