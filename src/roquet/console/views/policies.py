"""Policies of access control 2.0: what users may do, on every broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.admin import PolicyEntry, PolicyInfo
from roquet.admin.users import asked, tell_all
from roquet.auth import words
from roquet.base.errors import Refused, RoquetError, UsageError
from roquet.console.context import each
from roquet.console.declared import Action, Field, View
from roquet.console.roles import Role
from roquet.console.views.users import KINDS as USER_KINDS
from roquet.console.views.users import PAGE, STATUSES, USER, done

if TYPE_CHECKING:
    from roquet.console.context import Context
    from roquet.console.declared import Data, Done

_SUBJECT = "User:"
DECISIONS = ("Allow", "Deny")
KINDS = ("Custom", "Default")


async def policies(context: Context, _: Data) -> Data:
    """List the users that brokers and name servers keep, and the entries of their policies."""
    admin = context.admin
    keepers = await admin.users.keepers()
    users = await each(asked(name, admin.users.list_of(at)) for name, at in keepers.items())
    found = await each(asked(name, admin.users.list_policies(at)) for name, at in keepers.items())
    rows: list[dict[str, Any]] = []
    people: list[dict[str, Any]] = []
    off: list[str] = []
    there_are = 0
    for name, there, entries in zip(keepers, users, found, strict=True):
        wrong = next((it for it in (there, entries) if isinstance(it, RoquetError)), None)
        if wrong is not None or isinstance(there, RoquetError) or isinstance(entries, RoquetError):
            off.append(wrong.remark if isinstance(wrong, Refused) else str(wrong))
            continue
        there_are += 1
        people += [
            {"broker": name, "user": it.name, "type": it.kind, "status": it.status} for it in there
        ]
        rows += [
            {
                "broker": name,
                "user": of.subject.removeprefix(_SUBJECT),
                "resource": it.resource,
                "actions": list(it.actions),
                "decision": it.decision,
                "sources": list(it.sources),
                "policy": it.policy or KINDS[0],
            }
            for of in entries
            for it in of.entries
        ]
    most = context.limits.rows
    return {
        "rows": rows[:most],
        "count": len(rows),
        "users": people[:most],
        "user_count": len(people),
        "off": off,
        "keepers": there_are,
        "actions": list(words.ACTIONS),
        "decisions": list(DECISIONS),
        "kinds": list(KINDS),
        "user_kinds": list(USER_KINDS),
        "statuses": list(STATUSES),
    }


async def put_policy(context: Context, given: Data) -> Done:
    """Add an entry to a user's policy on every broker, or change the one about the resource."""
    actions, sources = _listed(given["actions"]), _listed(given["sources"])
    if not actions:
        raise UsageError("actions is empty: it should look like Pub,Sub")
    words.check([given["resource"]], actions, sources)
    entry = PolicyEntry(
        resource=given["resource"],
        actions=actions,
        decision=given["decision"],
        sources=sources,
        policy=given["policy"],
    )
    about = PolicyInfo(subject=_SUBJECT + given["user"], entries=(entry,))
    told = await context.admin.users.recipients()
    await tell_all(told.brokers, lambda address: context.admin.users.add_policies(address, about))
    what = f"{given['user']}: {entry.decision} {','.join(actions)} on {entry.resource}"
    return done(what, told)


async def delete_policy(context: Context, given: Data) -> Done:
    """Take the Custom entry about a resource from a user; without a resource, all policies."""
    resource = given["resource"]
    if resource is not None:
        words.check([resource], (), ())
    elif given["confirm"] != given["user"]:
        raise UsageError("the name that was typed is not the user's: nothing is deleted")
    subject = _SUBJECT + given["user"]
    told = await context.admin.users.recipients()
    await tell_all(
        told.brokers,
        lambda address: context.admin.users.delete_policies(address, subject, resource),
    )
    what = "all policies" if resource is None else f"the entry about {resource}"
    return done(f"{given['user']}: without {what}", told)


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(it.strip() for it in (text or "").split(",") if it.strip())


_RESOURCE = "Topic:orders, Topic:or*, Group:*, Cluster:NAME or *"

VIEW = View(
    path=PAGE,
    title="Users and policies",
    role=Role.ADMINISTRATOR,
    show=policies,
    template="people/policies.html",
)
ACTIONS = (
    Action(
        path="/policy/put",
        title="Add or change an entry of a policy",
        role=Role.ADMINISTRATOR,
        do=put_policy,
        fields=(
            USER,
            Field(name="resource", about=_RESOURCE, required=True),
            Field(name="actions", about="Pub,Sub or All", required=True),
            Field(name="decision", about="may it?", choices=DECISIONS, default=DECISIONS[0]),
            Field(name="sources", about="only from these addresses or blocks", size_max=4000),
            Field(
                name="policy", about="Custom goes before Default", choices=KINDS, default=KINDS[0]
            ),
        ),
    ),
    Action(
        path="/policy/delete",
        title="Take an entry, or all policies, from a user",
        role=Role.ADMINISTRATOR,
        do=delete_policy,
        fields=(
            USER,
            Field(name="resource", about=f"of the Custom entry: {_RESOURCE}"),
            Field(name="confirm", about="the user's name again, for all policies"),
        ),
    ),
)
