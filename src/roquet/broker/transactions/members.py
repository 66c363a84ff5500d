"""Who is asked about half messages and who may end them: the members of their producer groups.

A connection becomes a member by a heartbeat that names the group. A member is asked about half
messages of topics that its account may publish to, and no others: the question carries the message.

Ends come from members too, but not always on the connection of the heartbeats: proxies have many
connections, and clients before 5.1 send their first heartbeat up to 30 s after their first message.
So an end is taken from the connection that sent the half message, from a member, and from another
connection of a member's account (its host, where there are no accounts). As long as the group has
no member at all, the host counts that sent the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.acl.accounts import Perm
from roquet.acl.needs import topic
from roquet.acl.rights import EVERYBODY, Caller
from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol import hosts

if TYPE_CHECKING:
    from roquet.acl.rights import Asking, Rights
    from roquet.broker.clients.registry import Client
    from roquet.broker.transactions.seams import Producers
    from roquet.store.records import Record

_PORT_SIZE = 4


class ProducerMembers:
    """Knows the members of producer groups and what their accounts may do."""

    def __init__(self, producers: Producers, rights: Rights = EVERYBODY) -> None:
        self._producers = producers
        self._rights = rights

    def may_be_asked(self, client: Client, real_topic: str) -> bool:
        """Tell whether a member may be shown a half message of a topic.

        One whose account signs otherwise since its heartbeat may not.
        """
        if client.secret not in {None, self._rights.secrets.get(client.access_key)}:
            return False
        caller = Caller(client.access_key, client.peer.address)
        return self._rights.has(caller, [topic(real_topic, Perm.PUB)])

    def check_end(self, caller: Asking, group: str, half: Record) -> None:
        """Raise Refusal unless a caller is of the group that a half message belongs to."""
        if not self._is_member(caller, group, half.born_host):
            raise Refusal(
                Reason.FAILED,
                f"the producer group {group[:255]} has no member that this request could be of",
            )

    def _is_member(self, caller: Asking, group: str, born_host: bytes) -> bool:
        own = hosts.host_bytes(caller.address)
        if own == born_host:
            return True
        members = [member.client for member in self._producers.producers(group)]
        if not members:
            return own[:-_PORT_SIZE] == born_host[:-_PORT_SIZE]
        return any(
            client.peer.address == caller.address
            or (client.access_key == caller.access_key and _is_near(client, caller))
            for client in members
        )


def _is_near(client: Client, caller: Asking) -> bool:
    """Tell whether an account vouches for both, or else whether they are on one host."""
    same_host = client.peer.address.rpartition(":")[0] == caller.address.rpartition(":")[0]
    return bool(caller.access_key) or same_host
