"""Accounts, as `mqadmin` of RocketMQ 4.9 asks for and changes them (50 to 54)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.acl.tools import AclTools

log = logging.getLogger(__name__)


class AccountAdapter:
    """Answers only an administrator's account: the guard checks it."""

    def __init__(self, tools: AclTools) -> None:
        self._tools = tools

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,), self.update, "admin"),
            Route((RequestCode.DELETE_ACL_CONFIG,), self.delete, "admin"),
            Route((RequestCode.GET_BROKER_CLUSTER_ACL_INFO,), self.versions, "admin"),
            Route((RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,), self.white_list, "admin"),
            Route((RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,), self.show, "admin"),
        ]

    async def update(self, request: Request) -> Command:
        """Make or change an account."""
        await self._tools.update(request.command.ext or {})
        log.info("an account was changed by %s", request.peer.address)
        return reply_to(request.command)

    async def delete(self, request: Request) -> Command:
        """Delete an account."""
        await self._tools.delete(request.command.ext or {})
        log.info("an account was deleted by %s", request.peer.address)
        return reply_to(request.command)

    async def white_list(self, request: Request) -> Command:
        """Replace the addresses that need no account."""
        await self._tools.replace_white_list(request.command.ext or {})
        log.info("the white list was changed by %s", request.peer.address)
        return reply_to(request.command)

    def versions(self, request: Request) -> Command:
        """Show the versions of the files."""
        return reply_to(request.command, ext=self._tools.versions())

    def show(self, request: Request) -> Command:
        """Show all accounts without their secrets."""
        return reply_to(request.command, body=self._tools.show())
