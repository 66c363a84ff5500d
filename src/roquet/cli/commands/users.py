"""`roquet user …` and `roquet acl …`: users and policies of access control 2.0, on every broker.

Slaves are told behind their masters: those of a master that is not ours keep users of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from roquet.admin import PolicyEntry, PolicyInfo, UserInfo
from roquet.base.errors import NotFound, Refused, UsageError
from roquet.cli import output
from roquet.cli.commands.asking import ask
from roquet.cli.contexts import secret_of
from roquet.cli.exits import EXIT_LEFT_OUT
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Sequence

    from roquet.admin import Admin

T = TypeVar("T")

_PASSWORD_FLAG = "--password-file"  # noqa: S105  (the name of a flag)


async def create(admin: Admin, options: argparse.Namespace) -> int:
    """Make a user."""
    brokers = await _brokers(admin)
    password = secret_of(options.password_file, _PASSWORD_FLAG)
    user = UserInfo(name=options.user, password=password, kind=options.type)
    await _tell(brokers, lambda address: admin.users.create(address, user))
    output.line(f"{options.user}: made on every broker")
    return 0


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
    brokers = await _brokers(admin)
    file = options.password_file
    password = None if file is None else secret_of(file, _PASSWORD_FLAG)
    user = UserInfo(name=options.user, password=password, kind=options.type, status=options.status)
    ask(f"{options.user} gets another {what}", options)
    await _tell(brokers, lambda address: admin.users.update(address, user))
    output.line(f"{options.user}: changed on every broker")
    return 0


async def delete(admin: Admin, options: argparse.Namespace) -> int:
    """Delete a user with all policies."""
    brokers = await _brokers(admin)
    # Brokers answer as RocketMQ's: the deletion of a user who is not there succeeds.
    found = [
        await _asked(f"{name} at {address}", admin.users.get(address, options.user))
        for name, address in brokers
    ]
    if not any(found):
        raise NotFound(f"no broker has a user {options.user[:80]!r}")
    ask(f"{options.user} can do nothing any more", options, options.user)
    await _tell(brokers, lambda address: admin.users.delete(address, options.user))
    output.line(f"{options.user}: deleted on every broker")
    return 0


async def show(admin: Admin, options: argparse.Namespace) -> int:
    """List users of each master, without passwords."""
    rows = [
        (broker, it.name, it.kind, it.status)
        for broker, address in (await _masters(admin)).items()
        for it in await _asked(broker, admin.users.list_of(address))
        if options.user in (None, it.name)
    ]
    if options.user is not None and not rows:
        raise NotFound(f"no broker has a user {options.user[:80]!r}")
    output.listed(("broker", "user", "type", "status"), rows, options.output)
    return 0


async def policies(admin: Admin, options: argparse.Namespace) -> int:
    """List policy entries of each master."""
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
        for broker, address in (await _masters(admin)).items()
        for of in await _asked(broker, admin.users.list_policies(address))
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
    brokers = await _brokers(admin)
    ask(shown, options)
    await _tell(brokers, lambda address: admin.users.add_policies(address, about))
    output.line(shown)
    return 0


async def revoke(admin: Admin, options: argparse.Namespace) -> int:
    """Take an entry from a user's Custom policy, or all policies."""
    what = "all policies" if options.resource is None else f"the entry about {options.resource}"
    brokers = await _brokers(admin)
    ask(f"{options.user} loses {what}", options)
    subject = f"User:{options.user}"
    await _tell(
        brokers, lambda address: admin.users.delete_policies(address, subject, options.resource)
    )
    output.line(f"{options.user}: without {what}")
    return 0


async def bring(admin: Admin, options: argparse.Namespace) -> int:
    """Make the users and policies of one broker, RocketMQ's for instance, on all others.

    A line for each thing that cannot be had; then the exit code is 3. Users that are there stay.
    """
    users = await _asked(options.source, admin.users.list_of(options.source))
    policies = {
        it.subject: it.entries
        for it in await _asked(options.source, admin.users.list_policies(options.source))
    }
    brokers = [it for it in await _brokers(admin) if it[1] != options.source]
    if not brokers:
        raise NotFound(f"no broker but {options.source} is registered")
    ask(f"{len(users)} users of {options.source} are made on {len(brokers)} brokers", options)
    lost: list[str] = []
    names = {f"User:{it.name}" for it in users}
    lost += [f"{it}: policies of nobody" for it in policies if it not in names]
    lost += [f"{it.name}: {options.source} shows no password" for it in users if not it.password]
    for name, address in brokers:
        there = {it.name for it in await _asked(name, admin.users.list_of(address))}
        for user in users:
            if user.name in there:
                lost.append(f"{user.name}: {name} has such a user, who stays as it is there")
            elif user.password:
                entries = policies.get(f"User:{user.name}", ())
                lost += [f"{it} (on {name})" for it in await _bring(admin, address, user, entries)]
    for text in dict.fromkeys(lost):
        output.line(f"not had: {output.plain(text)}")
    output.line(f"{options.source}: {len(users)} users, {len(lost)} things not had")
    return EXIT_LEFT_OUT if lost else 0


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


async def _masters(admin: Admin) -> dict[str, str]:
    """Return the masters by name. Raises NotFound where there are none."""
    known = (await admin.brokers.cluster()).brokers
    found = {name: it.master for name, it in sorted(known.items()) if it.master is not None}
    if not found:
        raise NotFound("no broker is registered; try: roquet cluster health")
    return found


async def _brokers(admin: Admin) -> list[tuple[str, str]]:
    """Return name and address of every broker, masters first. Raises NotFound without any."""
    known = (await admin.brokers.cluster()).brokers
    found = sorted(
        (broker_id, name, address)
        for name, data in known.items()
        for broker_id, address in data.addresses.items()
    )
    if not found:
        raise NotFound("no broker is registered; try: roquet cluster health")
    return [(name, address) for _, name, address in found]


async def _tell(brokers: Sequence[tuple[str, str]], tell: Callable[[str], Awaitable[None]]) -> None:
    """Tell one after the other. Raises Refused, saying who refused and how many were told."""
    for done, (name, address) in enumerate(brokers):
        told = f" ({done} of {len(brokers)} brokers were told)" if done else ""
        await _asked(f"{name} at {address}", tell(address), told)


async def _asked(who: str, answer: Awaitable[T], behind: str = "") -> T:
    """Return an answer. Raises Refused, saying who refused and why."""
    try:
        return await answer
    except Refused as refusal:
        why = refusal.remark
        if refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            why = "it keeps no users: it runs without authenticationEnabled=true"
        raise Refused(refusal.code, f"{who}: {why}{behind}") from refusal
