"""Accounts of brokers (access control 1.0), and who may use this console."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from roquet.base.errors import NotFound, Refused, RoquetError, UsageError
from roquet.console.context import each
from roquet.console.declared import Done
from roquet.console.roles import role_of
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from roquet.console.context import Context
    from roquet.console.declared import Data


async def accounts(context: Context, _: Data) -> Data:
    """List the accounts that brokers keep, without secrets."""
    masters = {
        name: data.master
        for name, data in (await context.admin.brokers.cluster()).brokers.items()
        if data.master is not None
    }
    found = await each(context.admin.accounts.list_of(it) for it in masters.values())
    rows: list[dict[str, Any]] = []
    off: list[str] = []
    keepers = 0
    for name, result in zip(masters, found, strict=True):
        if isinstance(result, RoquetError):
            is_off = (
                isinstance(result, Refused)
                and result.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            )
            off.append(
                f"{name} keeps no accounts: it runs without aclEnable=true"
                if is_off
                else f"{name}: {result}"
            )
            continue
        keepers += 1
        rows += [{"broker": name, **dataclasses.asdict(it)} for it in result]
    return {"rows": rows[: context.limits.rows], "count": len(rows), "off": off, "keepers": keepers}


async def put_account(context: Context, given: Data) -> Done:
    """Make an account on every master, or change what is given of one."""
    fields = {
        "secretKey": given["secret"],
        "admin": None if given["admin"] is None else str(given["admin"]).lower(),
        "defaultTopicPerm": given["default_topic"],
        "defaultGroupPerm": given["default_group"],
        "topicPerms": given["topics"],
        "groupPerms": given["groups"],
        "whiteRemoteAddress": given["white_address"],
    }
    ext = {name: value for name, value in fields.items() if value is not None}
    if not ext:
        raise UsageError("nothing is to be changed")
    await context.admin.accounts.put({"accessKey": given["user"], **ext})
    return Done(f"account {given['user']}: set on every master", "/accounts")


async def delete_account(context: Context, given: Data) -> Done:
    """Delete an account, when its name is given twice."""
    if given["confirm"] != given["user"]:
        raise UsageError("the name that was typed is not the account's: nothing is deleted")
    await context.admin.accounts.delete(given["user"])
    return Done(f"account {given['user']} deleted", "/accounts")


async def people(context: Context, _: Data) -> Data:
    """List who is signed in."""
    now_s = context.parts.clock.steady_ms() / 1000
    return {
        "rows": [
            {
                "name": it.name,
                "role": it.role.word,
                "minutes": round((now_s - it.began_s) / 60),
                "idle_minutes": round((now_s - it.seen_s) / 60),
            }
            for it in context.parts.sessions.all(now_s)
        ],
        "link_minutes": round(context.limits.link_s / 60),
    }


async def invite(context: Context, given: Data) -> Done:
    """Make a token that signs somebody in once, with a role."""
    if not context.parts.config.login.tokens:
        raise UsageError("one-time tokens are off at this console (--login)")
    now_s = context.parts.clock.steady_ms() / 1000
    role = role_of(given["role"])
    token = context.parts.sessions.make_link(given["name"], role, now_s)
    if token is None:
        raise UsageError("too many tokens are not used yet: wait until some have ended")
    minutes = round(context.limits.link_s / 60)
    text = f"{given['name']} can sign in as {role.word}, once, within {minutes} minutes"
    return Done(text, "/people", {"token": token}, told=token)


async def dismiss(context: Context, given: Data) -> Done:
    """End all sessions of a name."""
    count = context.parts.sessions.end_all(given["name"])
    if not count:
        raise NotFound(f"{given['name'][:80]} is not signed in")
    if context.parts.clients is not None:
        await context.parts.clients.tick()
    return Done(f"{count} sessions of {given['name']} ended", "/people")
