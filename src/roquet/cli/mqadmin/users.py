"""Users and policies of access control 2.0, as RocketMQ's tool changes and shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin import PolicyEntry, PolicyInfo, UserInfo
from roquet.cli import output
from roquet.cli.mqadmin.shared import addresses_in, targets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from roquet.admin import Admin

_USER = "{:<16}  {:<22}  {:<22}  {:<22}"
_ENTRY = "{:<16}  {:<10}  {:<22}  {:<20}  {:<24}  {:<10}"


async def create_user(admin: Admin, options: argparse.Namespace) -> int:
    """Make a user on a broker, or on all of a cluster."""
    kind = _trimmed(options.userType)
    user = UserInfo(name=options.username.strip(), password=options.password.strip(), kind=kind)
    for address in await _told(admin, options):
        await admin.users.create(address, user)
        output.line(f"create user to {address} success.")
    return 0


async def update_user(admin: Admin, options: argparse.Namespace) -> int:
    """Change a user on a broker, or on all of a cluster."""
    user = UserInfo(
        name=options.username.strip(),
        password=_trimmed(options.password),
        kind=_trimmed(options.userType),
        status=_trimmed(options.userStatus),
    )
    for address in await _told(admin, options):
        await admin.users.update(address, user)
        output.line(f"update user to {address} success.")
    return 0


async def delete_user(admin: Admin, options: argparse.Namespace) -> int:
    """Delete a user on a broker, or on all of a cluster."""
    for address in await _told(admin, options):
        await admin.users.delete(address, options.username.strip())
        output.line(f"delete user to {address} success.")
    return 0


async def get_user(admin: Admin, options: argparse.Namespace) -> int:
    """Print a user, of the first broker that has it."""
    for address in (await _targets(admin, options)).values():
        found = await admin.users.get(address, _trimmed(options.username) or "")
        if found is not None:
            _print_users([found])
            break
    return 0


async def list_user(admin: Admin, options: argparse.Namespace) -> int:
    """Print the users of the first broker that has some."""
    for address in (await _targets(admin, options)).values():
        found = await admin.users.list_of(address, _trimmed(options.filter))
        if found:
            _print_users(found)
            if options.clusterName is not None:
                output.line(f"get user from {address} success.")
            break
    return 0


async def copy_user(admin: Admin, options: argparse.Namespace) -> int:
    """Copy users, or those that are named, from one broker to another."""
    source, target = options.fromBroker.strip(), options.toBroker.strip()
    named = _listed(options.usernames)
    if named:
        asked = [await admin.users.get(source, name) for name in named]
        found = [user for user in asked if user is not None]
    else:
        found = [*await admin.users.list_of(source)]
    for user in found:
        if await admin.users.get(target, user.name) is None:
            await admin.users.create(target, user)
        else:
            await admin.users.update(target, user)
        output.line(f"copy user of {user.name} from {source} to {target} success.")
    return 0


async def create_acl(admin: Admin, options: argparse.Namespace) -> int:
    """Add policy entries on a broker, or on all of a cluster."""
    for address in await _told(admin, options):
        await admin.users.add_policies(address, _policies(options))
        output.line(f"create acl to {address} success.")
    return 0


async def update_acl(admin: Admin, options: argparse.Namespace) -> int:
    """Change policy entries on a broker, or on all of a cluster."""
    for address in await _told(admin, options):
        await admin.users.update_policies(address, _policies(options))
        output.line(f"update acl to {address} success.")
    return 0


async def delete_acl(admin: Admin, options: argparse.Namespace) -> int:
    """Delete policies on a broker, or on all of a cluster."""
    subject, resource = options.subject.strip(), _trimmed(options.resources)
    for address in await _told(admin, options):
        await admin.users.delete_policies(address, subject, resource)
        output.line(f"delete acl to {address} success.")
    return 0


async def get_acl(admin: Admin, options: argparse.Namespace) -> int:
    """Print the policies of a subject, as each broker that has some has them."""
    for address in (await _targets(admin, options)).values():
        found = await admin.users.policies(address, _trimmed(options.subject) or "")
        if found is not None:
            _print_policies([found])
    return 0


async def list_acl(admin: Admin, options: argparse.Namespace) -> int:
    """Print policies, as each broker that has some has them."""
    subject, resource = _trimmed(options.subject), _trimmed(options.resource)
    for address in (await _targets(admin, options)).values():
        found = await admin.users.list_policies(address, subject, resource)
        if found:
            _print_policies(found)
    return 0


async def copy_acl(admin: Admin, options: argparse.Namespace) -> int:
    """Copy policies, or those of subjects that are named, from one broker to another."""
    source, target = options.fromBroker.strip(), options.toBroker.strip()
    named = _listed(options.subjects)
    if named:
        asked = [await admin.users.policies(source, subject) for subject in named]
        found = [it for it in asked if it is not None]
    else:
        found = [*await admin.users.list_policies(source)]
    for it in found:
        if await admin.users.policies(target, it.subject) is None:
            await admin.users.add_policies(target, it)
        else:
            await admin.users.update_policies(target, it)
        output.line(f"copy acl of {it.subject} from {source} to {target} success.")
    return 0


async def _targets(admin: Admin, options: argparse.Namespace) -> dict[str, str]:
    """Return name -> address of `-b`, which may be a name server's, or of a cluster's masters."""
    asked = options.brokerAddr
    if asked in admin.name_servers.addresses:  # it may have users of its own
        return {asked: asked}
    return await targets(admin, options)


async def _told(admin: Admin, options: argparse.Namespace) -> list[str]:
    """Return the addresses that a change goes to: `-b`, or all of a cluster, slaves as well."""
    chosen = await _targets(admin, options)
    if options.clusterName is None:
        return [*chosen.values()]
    return await addresses_in(admin, options.clusterName)


def _policies(options: argparse.Namespace) -> PolicyInfo:
    subject, decision = options.subject.strip(), options.decision.strip()
    actions, sources = _listed(options.actions), _listed(options.sourceIp)
    entries = tuple(
        PolicyEntry(resource=it, actions=actions, decision=decision, sources=sources)
        for it in _listed(options.resources)
    )
    return PolicyInfo(subject=subject, entries=entries)


def _print_users(users: Sequence[UserInfo]) -> None:
    output.line(_USER.format("#UserName", "#Password", "#UserType", "#UserStatus"))
    for it in users:
        texts = (it.name, it.password, it.kind, it.status)
        output.line(_USER.format(*("null" if text is None else text for text in texts)))


def _print_policies(found: Sequence[PolicyInfo]) -> None:
    titles = ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
    output.line(_ENTRY.format(*titles))
    for of in found:
        for it in of.entries:
            actions = f"[{', '.join(it.actions)}]"
            sources = f"[{', '.join(it.sources)}]" if it.sources else "null"
            kind = it.policy or "null"
            output.line(_ENTRY.format(of.subject, kind, it.resource, actions, sources, it.decision))


def _trimmed(text: str | None) -> str | None:
    return None if text is None else text.strip()


def _listed(text: str | None) -> tuple[str, ...]:
    """Return what is between commas, without what is empty."""
    return tuple(it.strip() for it in (text or "").split(",") if it)
