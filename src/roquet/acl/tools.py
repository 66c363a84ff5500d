"""What `mqadmin` of RocketMQ 4.9 asks for and changes: request codes 50 to 54."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from roquet.acl import accounts
from roquet.acl.accounts import ACCOUNTS, GLOBAL_WHITE, check_keys, check_perms, entries
from roquet.acl.addresses import compile_pattern
from roquet.base.errors import Refused, UsageError
from roquet.model.data_version import DataVersion
from roquet.protocol import fastjson
from roquet.protocol.bodies.topics import data_version_json, encode_data_version

if TYPE_CHECKING:
    from roquet.acl.accounts import Account, Document
    from roquet.acl.files import AccountFiles

UPDATE_FAILED = 209
DELETE_FAILED = 210
WHITE_LIST_FAILED = 211
"""Response codes of 4.9, which have other meanings in 5.x."""

HIDDEN = "******"


class Identity(Protocol):
    """The names of this server."""

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        ...

    @property
    def name(self) -> str:
        """Name of the broker."""
        ...

    @property
    def address(self) -> str:
        """`ip:port`."""
        ...


class AclTools:
    """Shows accounts without their secrets, and changes them."""

    def __init__(self, files: AccountFiles, identity: Identity) -> None:
        self._files = files
        self._identity = identity

    async def update(self, ext: dict[str, str]) -> None:
        """Make or change an account (50). Raises Refused with code 209."""
        key = ext.get("accessKey", "")
        try:
            wanted = _wanted(ext)
            home = self._files.table.homes.get(key)
            path = None if home is None else Path(home)
            await self._files.change(path, lambda document: _put(document, wanted))
        except (UsageError, OSError) as error:
            raise Refused(UPDATE_FAILED, str(error)) from error

    async def delete(self, ext: dict[str, str]) -> None:
        """Delete an account (51). Raises Refused with code 210."""
        key = ext.get("accessKey", "")
        home = self._files.table.homes.get(key)
        if home is None:
            raise Refused(
                DELETE_FAILED,
                f"The accesskey[{key[:64]}] corresponding to accessConfig has been deleted failed.",
            )
        try:
            await self._files.change(Path(home), lambda document: _drop(document, key))
        except (UsageError, OSError) as error:
            raise Refused(DELETE_FAILED, str(error)) from error

    async def replace_white_list(self, ext: dict[str, str]) -> None:
        """Replace the white list of a file (53). Raises Refused with code 211."""
        given = [text.strip() for text in ext.get("globalWhiteAddrs", "").split(",")]
        wanted = [text for text in given if text]
        try:
            for text in wanted:
                compile_pattern(text)
            path = self._known(ext.get("aclFileFullPath"))
            await self._files.change(path, lambda document: _set_white(document, wanted))
        except (UsageError, OSError) as error:
            raise Refused(WHITE_LIST_FAILED, str(error)) from error

    def versions(self) -> dict[str, str]:
        """Return the fields that tell the versions of all files (52)."""
        versions = self._files.table.versions
        main = versions.get(str(self._files.main))
        every = fastjson.java({file: data_version_json(it) for file, it in versions.items()})
        return {
            "version": encode_data_version(main or DataVersion()).decode(),
            "allAclFileVersion": every.decode(),
            "brokerName": self._identity.name,
            "brokerAddr": self._identity.address,
            "clusterName": self._identity.cluster,
        }

    def show(self) -> bytes:
        """Return all accounts, their secrets hidden (54)."""
        table = self._files.table
        return fastjson.java(
            {
                "globalWhiteAddrs": [pattern.text for pattern in table.white],
                "plainAccessConfigs": [_shown(it) for it in table.accounts.values()],
            }
        )

    def _known(self, file: str | None) -> Path | None:
        # Only files that were read already: a request must not name any other.
        if not file:
            return None
        if file not in self._files.table.versions:
            raise UsageError(f"{file[:200]} is no file of accounts here")
        return Path(file)


def _wanted(ext: dict[str, str]) -> dict[str, Any]:
    """Return an entry of `accounts`, checked as a whole."""
    check_keys(ext.get("accessKey", ""), ext.get("secretKey", ""))
    entry: dict[str, Any] = {
        "accessKey": ext["accessKey"],
        "secretKey": ext["secretKey"],
        "admin": "true" if ext.get("admin", "").lower() == "true" else "false",
    }
    if "whiteRemoteAddress" in ext:
        entry["whiteRemoteAddress"] = ext["whiteRemoteAddress"]
    for name in ("defaultTopicPerm", "defaultGroupPerm"):
        if ext.get(name):
            entry[name] = ext[name]
    for name in ("topicPerms", "groupPerms"):
        if ext.get(name):
            entry[name] = [text.strip() for text in ext[name].split(",") if text.strip()]
            check_perms(entry[name])
    accounts.read_account(entry)
    return entry


def _put(document: Document, wanted: dict[str, Any]) -> None:
    kept = [entry for entry in entries(document) if entry.get("accessKey") != wanted["accessKey"]]
    old = [entry for entry in entries(document) if entry.get("accessKey") == wanted["accessKey"]]
    document[ACCOUNTS] = [*kept, {**(old[0] if old else {}), **wanted}]


def _drop(document: Document, key: str) -> None:
    document[ACCOUNTS] = [it for it in entries(document) if it.get("accessKey") != key]


def _set_white(document: Document, wanted: list[str]) -> None:
    document[GLOBAL_WHITE] = wanted


def _shown(account: Account) -> dict[str, Any]:
    def perms(table: Any) -> list[str]:
        return [f"{name}={accounts.perm_text(perm)}" for name, perm in table.items()]

    return {
        "accessKey": account.access_key,
        "admin": account.admin,
        "defaultGroupPerm": accounts.perm_text(account.default_group),
        "defaultTopicPerm": accounts.perm_text(account.default_topic),
        "groupPerms": perms(account.groups),
        "secretKey": HIDDEN,
        "topicPerms": perms(account.topics),
        "whiteRemoteAddress": account.white.text,
    }
