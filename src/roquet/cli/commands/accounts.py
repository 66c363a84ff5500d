"""`roquet user …` and `roquet acl …`: accounts of access control 1.0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import NotFound, Refused, UsageError
from roquet.cli import output
from roquet.cli.commands.asking import ask
from roquet.cli.contexts import secret_of
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from roquet.admin import AccountInfo, Admin

_PERMS = ("DENY", "PUB", "SUB", "PUB|SUB", "ANY")


async def ls(admin: Admin, options: argparse.Namespace) -> int:
    """List accounts of each broker, without secrets."""
    known = await admin.brokers.masters()
    if options.broker is not None and options.broker not in known:
        raise NotFound(f"no broker {options.broker}: there are {', '.join(known)}")
    rows = [
        (
            name,
            it.access_key,
            it.admin,
            it.default_topic,
            it.default_group,
            " ".join(it.topics) or None,
            " ".join(it.groups) or None,
            it.white_address or None,
        )
        for name in sorted(known)
        if options.broker in (None, name)
        for it in await _accounts(admin, name)
    ]
    head = ("broker", "user", "admin", "topics", "groups", "of topics", "of groups", "addresses")
    output.listed(head, rows, options.output)
    return 0


async def _accounts(admin: Admin, broker: str) -> tuple[AccountInfo, ...]:
    try:
        return await admin.accounts.list_of(broker)
    except Refused as refusal:
        if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        text = (
            f"{broker} keeps no accounts of 4.x: it runs without aclEnable=true; users of 5.x:"
            " roquet user show"
        )
        raise Refused(refusal.code, text) from refusal


async def _demand_brokers(admin: Admin) -> None:
    """Raise Unreachable or NotFound where no broker could take a change."""
    await admin.brokers.masters()


async def put(admin: Admin, options: argparse.Namespace) -> int:
    """Make an account, or change one."""
    ext = {"accessKey": options.user}
    if options.secret_file is not None:
        ext["secretKey"] = secret_of(options.secret_file)
    if options.admin is not None:
        ext["admin"] = str(options.admin).lower()
    given = {
        "defaultTopicPerm": options.topics,
        "defaultGroupPerm": options.groups,
        "whiteRemoteAddress": options.addresses,
    }
    ext |= {name: value for name, value in given.items() if value is not None}
    for name, pairs in (("topicPerms", options.topic), ("groupPerms", options.group)):
        if pairs:
            ext[name] = ",".join(_perms(pairs))
    if len(ext) == 1:
        raise UsageError("nothing is to be changed: give --secret-file, --topic, --admin ...")
    await _demand_brokers(admin)
    ask(f"{options.user} gets {', '.join(sorted(ext.keys() - {'accessKey'}))}", options)
    await admin.accounts.put(ext)
    output.line(f"{options.user}: set on every master")
    return 0


def _perms(pairs: Sequence[str]) -> list[str]:
    for pair in pairs:
        name, _, perm = pair.partition("=")
        if not name or perm not in _PERMS:
            raise UsageError(f"{pair[:80]!r} should look like NAME=PUB|SUB, of {', '.join(_PERMS)}")
    return list(pairs)


async def rm(admin: Admin, options: argparse.Namespace) -> int:
    """Delete an account."""
    await _demand_brokers(admin)
    ask(f"{options.user} can do nothing any more", options, options.user)
    await admin.accounts.delete(options.user)
    output.line(f"{options.user}: deleted")
    return 0


async def allow(admin: Admin, options: argparse.Namespace) -> int:
    """Replace the addresses that need no account."""
    shown = ", ".join(options.address) or "no address"
    await _demand_brokers(admin)
    ask(f"{shown} and no other would need no account", options)
    await admin.accounts.set_white_list(tuple(options.address))
    output.line(f"without an account: {shown}")
    return 0
