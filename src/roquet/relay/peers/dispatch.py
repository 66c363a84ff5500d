"""From a packet for the relay itself to its handler, and from what it raises to an answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.relay.peers.links import RelayLink
from roquet.relay.peers.packets import PacketError

if TYPE_CHECKING:
    from roquet.relay.registry import Registry

log = logging.getLogger(__name__)

PacketHandler = Callable[[RelayLink, Command], Command | None]
"""Returns the answer, or None when there is none (yet). Raises Refused or PacketError."""


class Dispatcher:
    """Looks a packet up in the registry."""

    def __init__(self, packets: Registry[PacketHandler]) -> None:
        """Use a registry that others fill."""
        self._packets = packets

    def __call__(self, link: RelayLink, command: Command) -> None:
        """Handle a packet and write its answer, unless it is one-way."""
        try:
            handler = self._packets.get(command.code)
            if handler is None:
                remark = f"request type {command.code} not supported"
                raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)  # noqa: TRY301
            answer = handler(link, command)
        except Refused as error:
            answer = reply_to(command, error.code, remark=error.remark)
        except PacketError as error:
            answer = reply_to(command, ResponseCode.INVALID_PARAMETER, remark=str(error))
        except Exception as error:
            log.exception("packet %d of %s failed", command.code, link.address)
            remark = f"{type(error).__name__}: {error}"[:1024]
            answer = reply_to(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        if answer is not None and not command.is_one_way:
            answer.encoding = command.encoding
            link.reply(answer)
