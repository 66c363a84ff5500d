"""Whether a request about light topics may be carried out: checks and texts in Java's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.pop import MESSAGES_MAX
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.light.facts import is_parent
from roquet.broker.services.topic_checks import FAQ
from roquet.model.topic import can_read

if TYPE_CHECKING:
    from roquet.broker.api.pop import LightPopRequest
    from roquet.broker.light.facts import LightFacts
    from roquet.broker.pop.receive.checks import PopChecks
    from roquet.broker.state import Identity
    from roquet.protocol.pop.handle import ReceiptHandle


class LightChecks:
    """Admits requests or raises Refusal."""

    def __init__(self, pops: PopChecks, facts: LightFacts, identity: Identity) -> None:
        """`pops` has the checks that hold for every pop."""
        self._pops = pops
        self._facts = facts
        self._identity = identity

    def pop(self, request: LightPopRequest) -> None:
        """Admit a pop of light topics."""
        ip, group = self._identity.ip, request.group
        if self._pops.is_late(request.born_ms, request.poll_ms):
            text = f"the broker[{ip}] pop message is timeout too much"
            raise Refusal(Reason.POLLING_TIMEOUT, text)
        self._pops.check_serving("pop message")
        if request.max_messages > MESSAGES_MAX:
            text = f"the broker[{ip}] pop message's num is greater than {MESSAGES_MAX}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        self._check_topic(request.topic)
        config = self._facts.group(group)
        if config is None:
            text = f"subscription group [{group}] not exist, {FAQ}"
            raise Refusal(Reason.UNKNOWN_GROUP, text)
        if not config.consume_enable:
            raise Refusal(Reason.FORBIDDEN, f"subscription group no permission, {group}")
        if self._facts.bound_topic(group) != request.topic:
            text = f"subscription bind topic not match, {group}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        # From here on stricter than Java, which takes these and then holds or loses them.
        if request.max_messages < 1:
            text = f"maxMsgNum is {request.max_messages}: a pop asks for one message or more"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        self._pops.check_invisible(request.invisible_ms)

    def settled_queue(self, topic: str, queue_id: int, client: str) -> None:
        """Check the parent and the queue that an acknowledgement names."""
        self._pops.settled_queue(topic, queue_id, client)

    def handle(self, text: str) -> ReceiptHandle:
        """Read a receipt handle that this broker can settle."""
        return self._pops.handle(text)

    def check_invisible(self, invisible_ms: int) -> None:
        """Check that a message may be invisible so long."""
        self._pops.check_invisible(invisible_ms)

    def _check_topic(self, name: str) -> None:
        topic = self._facts.topic(name)
        if topic is None:
            text = f"topic [{name}] not exist, apply first please! {FAQ}"
            raise Refusal(Reason.UNKNOWN_TOPIC, text)
        if not can_read(topic.perm):
            raise Refusal(Reason.FORBIDDEN, f"the topic [{name}] peeking message is forbidden")
        if not is_parent(topic):
            text = f"the topic [{name}] message type not match"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
