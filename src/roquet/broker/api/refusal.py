"""How a service says no: a reason that a front can act on, and words for people."""

from __future__ import annotations

import enum

from roquet.base.errors import RoquetError


class Reason(enum.Enum):
    """Why a request was not carried out. Each front has one table from reason to its own codes."""

    FAILED = "failed"
    """It could not be done here and now; the text says why."""
    LIGHT_QUEUES_FULL = "light queues full"
    """The message would need one more light queue than there may be."""
    LIGHT_SUBSCRIPTIONS_FULL = "light subscriptions full"
    """Clients subscribe to as many light topics as they may."""
    BUSY = "busy"
    """The broker has too much to do: wait, or ask another one."""
    UNSUPPORTED = "unsupported"
    """This broker does not do such a thing."""
    NOT_MASTER = "not master"
    """Only a master does this."""
    ILLEGAL_MESSAGE = "illegal message"
    """The message itself cannot be stored."""
    STORE_UNAVAILABLE = "store unavailable"
    """The store takes no messages: a full disk, a failed sync, a slave."""
    FORBIDDEN = "forbidden"
    """The broker, the topic or the group does not permit it."""
    ACCOUNT_REFUSED = "account refused"
    """The caller's account lacks the right."""
    UNKNOWN_TOPIC = "unknown topic"
    UNKNOWN_GROUP = "unknown group"
    NOT_FOUND = "not found"
    """Nothing is known or stored under what was asked for."""
    UNPARSABLE_FILTER = "unparsable filter"
    NOT_SUBSCRIBED = "not subscribed"
    SUBSCRIPTION_OUTDATED = "subscription outdated"
    """The caller has a newer subscription than the broker."""
    UNKNOWN_FILTER = "unknown filter"
    FILTER_OUTDATED = "filter outdated"
    INVALID_ARGUMENT = "invalid argument"
    """A value is outside of what it may be."""
    CLIENT_OFFLINE = "client offline"
    """The client that the request is about is not connected here."""
    CLIENT_TIMEOUT = "client timeout"
    """That client did not answer in time."""
    NO_MESSAGE = "no message"
    """There is no message at the place that was named."""
    POLLING_FULL = "polling full"
    """As many requests wait for messages as may."""
    POLLING_TIMEOUT = "polling timeout"
    """The client has given up waiting by now."""
    RATE_LIMITED = "rate limited"
    """This caller asks more often than it may."""
    ILLEGAL_OPERATION = "illegal operation"
    """The request contradicts what it is about: another feature has to be used."""


class Refusal(RoquetError):  # noqa: N818  (it is an answer, not an accident)
    """A request that was not carried out: `reason` is for programs, `text` for people.

    The text is what RocketMQ 5.5.0 answers where it answers one: users search for it.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(f"{reason.value}: {text}")
        self.reason = reason
        self.text = text
