"""Users and policies, as `mqadmin` of RocketMQ 5.x asks for and changes them (3001 to 3010).

Slaves copy all of them (7003, our own).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.limits import KIB, MIB
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.acl.rights import Asking
    from roquet.auth.tools import UserTools

BODY_LIMITS: Mapping[RequestCode, tuple[int, str]] = {
    RequestCode.AUTH_CREATE_USER: (16 * KIB, "a name and a password"),
    RequestCode.AUTH_UPDATE_USER: (16 * KIB, "as 3001"),
    RequestCode.AUTH_CREATE_ACL: (MIB, "some 5,000 policy entries"),
    RequestCode.AUTH_UPDATE_ACL: (MIB, "as 3006"),
}
"""Request code -> bytes that its body may have, and why."""


class UserAdapter:
    """Answers whom the guard let pass: the right on the cluster, or a super user."""

    def __init__(self, tools: UserTools, caller_of: Callable[[Request], Asking], lane: str) -> None:
        """`caller_of` tells who sent a request that the guard let pass; `lane` takes them all."""
        self._tools = tools
        self._caller_of = caller_of
        self._lane = lane

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.AUTH_CREATE_USER,), self.create_user, self._lane),
            Route((RequestCode.AUTH_UPDATE_USER,), self.update_user, self._lane),
            Route((RequestCode.AUTH_DELETE_USER,), self.delete_user, self._lane),
            Route((RequestCode.AUTH_GET_USER,), self.get_user, self._lane),
            Route((RequestCode.AUTH_LIST_USER,), self.list_users, self._lane),
            Route((RequestCode.AUTH_CREATE_ACL,), self.create_acl, self._lane),
            Route((RequestCode.AUTH_UPDATE_ACL,), self.create_acl, self._lane),
            Route((RequestCode.AUTH_DELETE_ACL,), self.delete_acl, self._lane),
            Route((RequestCode.AUTH_GET_ACL,), self.get_acl, self._lane),
            Route((RequestCode.AUTH_LIST_ACL,), self.list_acls, self._lane),
            Route((RequestCode.GET_USERS,), self.snapshot, self._lane),
        ]

    async def create_user(self, request: Request) -> Command:
        """Make a user."""
        command = request.command
        await self._tools.create_user(command.ext or {}, command.body, self._caller_of(request))
        return reply_to(command)

    async def update_user(self, request: Request) -> Command:
        """Change a user."""
        command = request.command
        await self._tools.update_user(command.ext or {}, command.body, self._caller_of(request))
        return reply_to(command)

    async def delete_user(self, request: Request) -> Command:
        """Delete a user and the policies."""
        command = request.command
        await self._tools.delete_user(command.ext or {}, self._caller_of(request))
        return reply_to(command)

    async def get_user(self, request: Request) -> Command:
        """Show a user."""
        command = request.command
        found = self._tools.get_user(command.ext or {}, self._caller_of(request))
        return reply_to(command, body=found or b"")

    async def list_users(self, request: Request) -> Command:
        """Show users."""
        command = request.command
        found = self._tools.list_users(command.ext or {}, self._caller_of(request))
        return reply_to(command, body=found or b"")

    async def create_acl(self, request: Request) -> Command:
        """Add policy entries, or change them."""
        command = request.command
        await self._tools.create_acl(command.ext or {}, command.body, self._caller_of(request))
        return reply_to(command)

    async def delete_acl(self, request: Request) -> Command:
        """Delete policy entries."""
        command = request.command
        await self._tools.delete_acl(command.ext or {}, self._caller_of(request))
        return reply_to(command)

    async def get_acl(self, request: Request) -> Command:
        """Show the policies of a user."""
        command = request.command
        return reply_to(command, body=self._tools.get_acl(command.ext or {}) or b"")

    async def list_acls(self, request: Request) -> Command:
        """Show policies."""
        command = request.command
        return reply_to(command, body=self._tools.list_acls(command.ext or {}) or b"")

    async def snapshot(self, request: Request) -> Command:
        """Show a slave all users and policies, in pieces."""
        command = request.command
        ext, body = await self._tools.snapshot(command.ext or {}, self._caller_of(request))
        return reply_to(command, ext=ext, body=body)
