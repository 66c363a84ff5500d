"""Users and policies, as `mqadmin` of RocketMQ 5.x asks for and changes them (3001 to 3010).

Slaves copy all of them (7003, our own).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.auth.tools import UserTools
    from roquet.broker.remoting.callers import Callers


class UserAdapter:
    """Answers whom the guard let pass: the right on the cluster, or a super user."""

    def __init__(self, tools: UserTools, callers: Callers) -> None:
        self._tools = tools
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.AUTH_CREATE_USER,), self.create_user, "admin"),
            Route((RequestCode.AUTH_UPDATE_USER,), self.update_user, "admin"),
            Route((RequestCode.AUTH_DELETE_USER,), self.delete_user, "admin"),
            Route((RequestCode.AUTH_GET_USER,), self.get_user, "admin"),
            Route((RequestCode.AUTH_LIST_USER,), self.list_users, "admin"),
            Route((RequestCode.AUTH_CREATE_ACL,), self.create_acl, "admin"),
            Route((RequestCode.AUTH_UPDATE_ACL,), self.create_acl, "admin"),
            Route((RequestCode.AUTH_DELETE_ACL,), self.delete_acl, "admin"),
            Route((RequestCode.AUTH_GET_ACL,), self.get_acl, "admin"),
            Route((RequestCode.AUTH_LIST_ACL,), self.list_acls, "admin"),
            Route((RequestCode.GET_USERS,), self.snapshot, "admin"),
        ]

    async def create_user(self, request: Request) -> Command:
        """Make a user."""
        command = request.command
        await self._tools.create_user(command.ext or {}, command.body, self._callers.of(request))
        return reply_to(command)

    async def update_user(self, request: Request) -> Command:
        """Change a user."""
        command = request.command
        await self._tools.update_user(command.ext or {}, command.body, self._callers.of(request))
        return reply_to(command)

    async def delete_user(self, request: Request) -> Command:
        """Delete a user and the policies."""
        command = request.command
        await self._tools.delete_user(command.ext or {}, self._callers.of(request))
        return reply_to(command)

    async def get_user(self, request: Request) -> Command:
        """Show a user."""
        command = request.command
        found = self._tools.get_user(command.ext or {}, self._callers.of(request))
        return reply_to(command, body=found or b"")

    async def list_users(self, request: Request) -> Command:
        """Show users."""
        command = request.command
        found = self._tools.list_users(command.ext or {}, self._callers.of(request))
        return reply_to(command, body=found or b"")

    async def create_acl(self, request: Request) -> Command:
        """Add policy entries, or change them."""
        command = request.command
        await self._tools.create_acl(command.ext or {}, command.body, self._callers.of(request))
        return reply_to(command)

    async def delete_acl(self, request: Request) -> Command:
        """Delete policy entries."""
        command = request.command
        await self._tools.delete_acl(command.ext or {}, self._callers.of(request))
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
        ext, body = await self._tools.snapshot(command.ext or {}, self._callers.of(request))
        return reply_to(command, ext=ext, body=body)
