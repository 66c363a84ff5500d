"""The relay's own request and response codes, and the fields of its packets.

They lie outside the numbers of RocketMQ's requests and within the 16 bits of a binary header.
"""

from __future__ import annotations

import enum


class RelayCode(enum.IntEnum):
    """What relay and inner servers may ask of each other."""

    HELLO = 7100
    """Server to relay, on a link that the server dialled: its id."""
    REGISTER = 7101
    """Relay to server: the register packet; its answer is the register answer."""
    SERVER_MAP = 7102
    """Relay to server, one-way: it is registered, and which others are there."""
    NEW_SERVER = 7103
    """Relay to server, one-way: another server has come."""
    SERVER_GONE = 7104
    """Relay to server, one-way: another server has left."""
    HEARTBEAT = 7105
    """Both ways: I am here. A server adds how many are online there."""
    FORWARD = 7106
    """Server to server: to one id."""
    FORWARD_BY_TYPE = 7107
    """Server to server: to the one of a type that a routing key belongs to."""
    FORWARD_TO_ALL = 7108
    """Server to servers: to all others of a type, none of which answers."""


class RelayAnswer(enum.IntEnum):
    """Why the relay did not deliver, besides RocketMQ's SYSTEM_BUSY and INVALID_PARAMETER."""

    TARGET_UNKNOWN = 7201
    """No server has this id."""
    TARGET_GONE = 7202
    """The server is configured and not connected."""
    TARGET_DRAINING = 7203
    """The server takes no new packets."""
    TARGET_TIMEOUT = 7204
    """The server did not answer in time."""
    NO_SERVER_OF_TYPE = 7205
    """No server of this type takes packets."""
    OTHER_RELAY = 7206
    """A server's answer to a second relay: another one is alive."""
    NOT_REGISTERED = 7207
    """A packet on a link that is not registered."""
    TARGET_LOST = 7208
    """The server got the request and left before it answered."""


FORWARDS = frozenset({RelayCode.FORWARD, RelayCode.FORWARD_BY_TYPE, RelayCode.FORWARD_TO_ALL})

ID_MAX = 2**31 - 1
"""Largest server id, type and packet id; the smallest is 1."""
