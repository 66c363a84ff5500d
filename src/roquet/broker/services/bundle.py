"""The services of a broker, as fronts are given them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.broker.services.groups import Groups
    from roquet.broker.services.offsets import Offsets
    from roquet.broker.services.query import Queries
    from roquet.broker.services.receive import Receives
    from roquet.broker.services.replies import Replies
    from roquet.broker.services.send.recall import Recalls
    from roquet.broker.services.send.service import Sends
    from roquet.broker.services.send_back import SendBacks
    from roquet.broker.services.sequences.service import SequencedSends
    from roquet.broker.services.topics import Topics
    from roquet.broker.services.transactions import TransactionEnds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a broker does, without a transport.

    Fronts call these through `broker.operations`, where access control, plugins, metrics and audit
    are around them; what only the data shows, a service checks itself.
    """

    sends: Sends
    sequenced: SequencedSends
    replies: Replies
    receives: Receives
    offsets: Offsets
    queries: Queries
    send_backs: SendBacks
    recalls: Recalls
    transactions: TransactionEnds
    topics: Topics
    groups: Groups
