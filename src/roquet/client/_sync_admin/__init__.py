"""Administration by the blocking client: written by `python -m tools.sync_admin`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.client._sync_admin.accounts import Accounts
from roquet.client._sync_admin.brokers import Brokers
from roquet.client._sync_admin.groups import Groups
from roquet.client._sync_admin.messages import Messages
from roquet.client._sync_admin.name_servers import NameServers
from roquet.client._sync_admin.topics import Topics

if TYPE_CHECKING:
    from roquet import admin
    from roquet.service.loop_thread import LoopThread

__all__ = ["Accounts", "Admin", "Brokers", "Groups", "Messages", "NameServers", "Topics"]


class Admin:
    """The families of administration, blocking."""

    def __init__(self, inner: admin.Admin, loop: LoopThread) -> None:
        """Wrap."""
        self.topics: Topics = Topics(inner.topics, loop)
        self.groups: Groups = Groups(inner.groups, loop)
        self.messages: Messages = Messages(inner.messages, loop)
        self.brokers: Brokers = Brokers(inner.brokers, loop)
        self.name_servers: NameServers = NameServers(inner.name_servers, loop)
        self.accounts: Accounts = Accounts(inner.accounts, loop)
