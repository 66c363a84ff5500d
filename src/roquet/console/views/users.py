"""Users of access control 2.0, made, changed and deleted on every broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin import UserInfo
from roquet.admin.users import asked, tell_all
from roquet.base.errors import NotFound, UsageError
from roquet.console.declared import Action, Done, Field
from roquet.console.roles import Role

if TYPE_CHECKING:
    from roquet.admin.users import Recipients
    from roquet.console.context import Context
    from roquet.console.declared import Data

PAGE = "/policies"
"""Users stand beside what they may do."""
KINDS = ("Normal", "Super")
STATUSES = ("enable", "disable")


async def create(context: Context, given: Data) -> Done:
    """Make a user. A broker that has one by that name refuses, and nobody after it is told."""
    name = given["user"]
    users = context.admin.users
    told = await users.recipients()
    about = UserInfo(name=name, password=given["password"], kind=given["type"])
    await tell_all(told.brokers, lambda address: users.create(address, about))
    return done(f"{name}: made", told)


async def alter(context: Context, given: Data) -> Done:
    """Change what is given of a user."""
    name = given["user"]
    about = UserInfo(
        name=name, password=given["password"], kind=given["type"], status=given["status"]
    )
    changed = [key for key in ("password", "type", "status") if given[key] is not None]
    if not changed:
        raise UsageError("nothing is to be changed: give a password, a type or a status")
    users = context.admin.users
    told = await users.recipients()
    await _demand(context, told, name)
    await tell_all(told.brokers, lambda address: users.update(address, about))
    return done(f"{name}: another {', '.join(changed)}", told)


async def delete(context: Context, given: Data) -> Done:
    """Delete a user with all policies, when the name is given twice."""
    name = given["user"]
    if given["confirm"] != name:
        raise UsageError("the name that was typed is not the user's: nothing is deleted")
    users = context.admin.users
    told = await users.recipients()
    await _demand(context, told, name)
    await tell_all(told.brokers, lambda address: users.delete(address, name))
    return done(f"{name}: deleted", told)


async def _demand(context: Context, told: Recipients, name: str) -> None:
    # Brokers answer as RocketMQ's: to delete a user who is not there succeeds.
    for broker, address in told.brokers:
        if await asked(f"{broker} at {address}", context.admin.users.get(address, name)):
            return
    raise NotFound(f"no broker has a user {name[:80]!r}")


def done(text: str, told: Recipients) -> Done:
    """Return what was done, where, and which servers will lose it."""
    lost = "".join(f"; {it}" for it in told.lost)
    return Done(f"{text}, {told.everywhere}{lost}", PAGE)


USER = Field(name="user", about="the user's name", required=True)
ACTIONS = (
    Action(
        path="/user/create",
        title="Make a user",
        role=Role.ADMINISTRATOR,
        do=create,
        fields=(
            USER,
            Field(name="password", about="the user's password", required=True, secret=True),
            Field(name="type", about="Super may do all", choices=KINDS, default=KINDS[0]),
        ),
    ),
    Action(
        path="/user/alter",
        title="Change a user",
        role=Role.ADMINISTRATOR,
        do=alter,
        fields=(
            USER,
            Field(name="password", about="another password", secret=True),
            Field(name="type", about="Super may do all", choices=KINDS),
            Field(name="status", about="whether the user may sign in", choices=STATUSES),
        ),
    ),
    Action(
        path="/user/delete",
        title="Delete a user with all policies",
        role=Role.ADMINISTRATOR,
        do=delete,
        fields=(USER, Field(name="confirm", about="the same name again")),
    ),
)
