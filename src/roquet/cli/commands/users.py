"""`roquet user …` and `roquet acl …`: users and policies of access control 2.0, on every broker."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from roquet.admin import PolicyEntry, PolicyInfo, UserInfo
from roquet.admin.users import NAME_SERVER, asked, tell_all
from roquet.base.errors import NotFound, Refused, UsageError
from roquet.cli import output
from roquet.cli.commands.asking import ask
from roquet.cli.contexts import secret_of
from roquet.cli.exits import EXIT_LEFT_OUT
from roquet.protocol.hosts import join_address, split_address

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from roquet.admin import Admin
    from roquet.admin.users import Recipients

_PASSWORD_FLAG = "--password-file"  # noqa: S105  (the name of a flag)


async def create(admin: Admin, options: argparse.Namespace) -> int:
    """Make a user."""
    told = await _brokers(admin)
    password = secret_of(options.password_file, _PASSWORD_FLAG)
    user = UserInfo(name=options.user, password=password, kind=options.type)
    await tell_all(told.brokers, lambda address: admin.users.create(address, user))
    output.line(f"{options.user}: made {told.everywhere}")
    return _code(told)


async def alter(admin: Admin, options: argparse.Namespace) -> int:
    """Change a user."""
    given = {
        "password": options.password_file,
        "type": options.type,
        "status": options.status,
    }
    what = ", ".join(name for name, text in given.items() if text is not None)
    if not what:
        raise UsageError("nothing is to be changed: give --password-file, --type or --status")
    told = await _brokers(admin)
    file = options.password_file
    password = None if file is None else secret_of(file, _PASSWORD_FLAG)
    user = UserInfo(name=options.user, password=password, kind=options.type, status=options.status)
    ask(f"{options.user} gets another {what}", options)
    await tell_all(told.brokers, lambda address: admin.users.update(address, user))
    output.line(f"{options.user}: changed {told.everywhere}")
    return _code(told)


async def delete(admin: Admin, options: argparse.Namespace) -> int:
    """Delete a user with all policies."""
    told = await _brokers(admin)
    # Brokers answer as RocketMQ's: the deletion of a user who is not there succeeds.
    found = [
        await asked(f"{name} at {address}", admin.users.get(address, options.user))
        for name, address in told.brokers
    ]
    if not any(found):
        raise NotFound(f"no broker has a user {options.user[:80]!r}")
    ask(f"{options.user} can do nothing any more", options, options.user)
    await tell_all(told.brokers, lambda address: admin.users.delete(address, options.user))
    output.line(f"{options.user}: deleted {told.everywhere}")
    return _code(told)


async def show(admin: Admin, options: argparse.Namespace) -> int:
    """List users of each master and name server, without passwords."""
    rows = [
        (broker, it.name, it.kind, it.status)
        for broker, address in (await admin.users.keepers()).items()
        for it in await asked(broker, admin.users.list_of(address))
        if options.user in (None, it.name)
    ]
    if options.user is not None and not rows:
        raise NotFound(f"no broker has a user {options.user[:80]!r}")
    output.listed(("broker", "user", "type", "status"), rows, options.output)
    return 0


async def policies(admin: Admin, options: argparse.Namespace) -> int:
    """List policy entries of each master and name server."""
    wanted = None if options.user is None else f"User:{options.user}"
    rows = [
        (
            broker,
            of.subject.removeprefix("User:"),
            it.resource,
            " ".join(it.actions),
            it.decision,
            " ".join(it.sources) or None,
            it.policy,
        )
        for broker, address in (await admin.users.keepers()).items()
        for of in await asked(broker, admin.users.list_policies(address))
        if wanted in (None, of.subject)
        for it in of.entries
    ]
    head = ("broker", "user", "resource", "actions", "decision", "from", "policy")
    output.listed(head, rows, options.output)
    return 0


async def grant(admin: Admin, options: argparse.Namespace) -> int:
    """Say what a user may do with resources, or may not."""
    decision = "Deny" if options.deny else "Allow"
    kind = "Default" if options.default else "Custom"
    actions = tuple(it.strip() for it in options.actions.split(",") if it.strip())
    if not actions:
        raise UsageError("--actions is empty: it should look like Pub,Sub")
    _check(options.resource, actions, options.source)
    entries = tuple(
        PolicyEntry(
            resource=it,
            actions=actions,
            decision=decision,
            sources=tuple(options.source),
            policy=kind,
        )
        for it in options.resource
    )
    about = PolicyInfo(subject=f"User:{options.user}", entries=entries)
    shown = f"{options.user}: {decision} {','.join(actions)} on {', '.join(options.resource)}"
    told = await _brokers(admin)
    ask(shown, options)
    await tell_all(told.brokers, lambda address: admin.users.add_policies(address, about))
    output.line(shown)
    return _code(told)


async def revoke(admin: Admin, options: argparse.Namespace) -> int:
    """Take an entry from a user's Custom policy, or all policies."""
    what = "all policies" if options.resource is None else f"the entry about {options.resource}"
    _check([] if options.resource is None else [options.resource])
    told = await _brokers(admin)
    ask(f"{options.user} loses {what}", options)
    subject = f"User:{options.user}"
    await tell_all(
        told.brokers,
        lambda address: admin.users.delete_policies(address, subject, options.resource),
    )
    output.line(f"{options.user}: without {what}")
    return _code(told)


async def bring(admin: Admin, options: argparse.Namespace) -> int:
    """Make the users and policies of one broker, RocketMQ's for instance, on all others.

    A line for each thing that cannot be had; then the exit code is 3. Users that are there stay;
    those that are there with the same password, type, status and policies are had.
    """
    source = options.source
    own = await _addresses_of(source)
    there = _People(
        await asked(source, admin.users.list_of(source)),
        await asked(source, admin.users.list_policies(source)),
    )
    told = await _brokers(admin)
    brokers = [it for it in told.brokers if it[1] not in own]
    if not brokers:
        raise NotFound(f"no broker but {source} is registered")
    users = there.users.values()
    ask(f"{len(users)} users of {source} are made on {len(brokers)} brokers", options)
    lost = [f"{it}: policies of nobody" for it in there.policies if it not in there.users]
    lost += [f"{it.name}: {source} shows no password" for it in users if not it.password]
    had = 0
    for name, address in brokers:
        who = f"{name} {address}" if name == NAME_SERVER else name
        here = _People(
            await asked(who, admin.users.list_of(address)),
            await asked(who, admin.users.list_policies(address)),
        )
        had += sum(there.is_same(here, it.name) for it in users)
        for user in users:
            if not user.password or there.is_same(here, user.name):
                continue
            if user.name in here.users:
                lost.append(f"{user.name}: {who} has another such user, who stays as it is there")
                continue
            entries = there.policies.get(user.name, ())
            lost += [f"{it} (on {who})" for it in await _bring(admin, address, user, entries)]
    lost = list(dict.fromkeys(lost))
    for text in lost:
        output.line(f"not had: {output.plain(text)}")
    had_text = f", {had} there already" if had else ""
    output.line(f"{source}: {len(users)} users{had_text}, {len(lost)} things not had")
    return EXIT_LEFT_OUT if lost else _code(told)


class _People:
    """The users of one broker with what they may do, by name."""

    def __init__(self, users: Sequence[UserInfo], policies: Sequence[PolicyInfo]) -> None:
        self.users = {it.name: it for it in users}
        self.policies = {it.subject.removeprefix("User:"): it.entries for it in policies}

    def is_same(self, other: _People, name: str) -> bool:
        """Tell whether both have this user, with the same password and the same rights."""
        mine, theirs = self.users[name], other.users.get(name)
        return bool(mine.password) and mine == theirs and self._may(name) == other._may(name)

    def _may(self, name: str) -> frozenset[tuple[object, ...]]:
        return frozenset(
            (
                it.resource,
                frozenset(it.actions),
                it.decision,
                frozenset(it.sources),
                it.policy or "Custom",
            )
            for it in self.policies.get(name, ())
        )


async def _addresses_of(broker: str) -> set[str]:
    """Return the addresses that a broker's address may be registered as. Raises UsageError."""
    try:
        host, port = split_address(broker)
    except ValueError as error:
        raise UsageError(f"{error}: a broker's address looks like 10.0.0.7:10911") from error
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: no name that anybody could have
        return {broker}  # whoever asks there says why it cannot be reached
    ends = [(at[0], at[1]) for *_, at in found]
    known = [
        join_address(host, port)
        for host, port in ends
        if isinstance(host, str) and isinstance(port, int)
    ]
    return {broker, *known}


async def _bring(
    admin: Admin, address: str, user: UserInfo, entries: Sequence[PolicyEntry]
) -> list[str]:
    """Make a user with policies on one broker; return what it refused."""
    try:
        await admin.users.create(address, user)
    except Refused as refusal:
        return [f"{user.name}: {refusal.remark}"]
    lost: list[str] = []
    for entry in entries:
        # One by one: a broker takes all entries of a request or none.
        try:
            about = PolicyInfo(subject=f"User:{user.name}", entries=(entry,))
            await admin.users.add_policies(address, about)
        except Refused as refusal:
            lost.append(f"{user.name}: entry about {entry.resource}: {refusal.remark}")
    return lost


def _check(
    resources: Sequence[str], actions: Sequence[str] = (), sources: Sequence[str] = ()
) -> None:
    from roquet.auth import words  # noqa: PLC0415  (few commands need it)

    words.check(resources, actions, sources)


async def _brokers(admin: Admin) -> Recipients:
    """Return who is to be told; say who loses it. Raises NotFound without any broker."""
    told = await admin.users.recipients()
    for text in told.lost:
        output.error(text)
    return told


def _code(told: Recipients) -> int:
    return EXIT_LEFT_OUT if told.lost else 0
