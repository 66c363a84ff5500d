"""What members of a consumer group say of themselves, as RocketMQ's tool prints it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from roquet.base.clock import SystemClock
from roquet.base.errors import NotFound, Refused, RoquetError, UsageError
from roquet.cli import output
from roquet.cli.exits import EXIT_LEFT_OUT
from roquet.cli.mqadmin.shared import java_bool, java_stamp, queue_text
from roquet.protocol.codes import ResponseCode
from roquet.protocol.versions import describe

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from roquet.admin import Admin
    from roquet.model.queue import MessageQueue
    from roquet.protocol.bodies.clients import Connection
    from roquet.protocol.bodies.stats import RunningInfo

_SETTLED_MS = 120_000
"""Members of a group may differ for so long after a start: not all have the new program yet."""
_STUCK_MS = 60_000
_STARTED, _TYPE = "PROP_CONSUMER_START_TIMESTAMP", "PROP_CONSUME_TYPE"
_WHOLE = (
    "commitOffset",
    "cachedMsgMinOffset",
    "cachedMsgMaxOffset",
    "cachedMsgCount",
    "cachedMsgSizeInMiB",
    "transactionMsgMinOffset",
    "transactionMsgMaxOffset",
    "transactionMsgCount",
)


async def consumer_status(admin: Admin, options: argparse.Namespace) -> int:
    """Print what a member says, or write that of each member to a file and judge all."""
    group, broker = options.consumerGroup.strip(), options.brokerAddr
    stacks = options.jstack
    if options.clientId is not None:
        name = options.clientId.strip()
        info = await admin.groups.running_info(group, name, stacks=stacks, broker=broker)
        output.line(shown(info))
        return 0
    infos: dict[str, RunningInfo] = {}
    silent = False
    folder = Path(str(SystemClock().now_ms()))
    widths = "{:<10} {:<40} {:<20} {}"
    output.line(widths.format("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"))
    for it in await _members(admin, group, broker):
        try:
            info = await admin.groups.running_info(
                group, it.client_id, stacks=stacks, broker=broker
            )
        except (Refused, RoquetError) as error:
            silent = True
            output.error(f"{it.client_id}: {error}")
            continue
        infos[it.client_id] = info
        file = _write(folder, it.client_id, shown(info))
        output.line(
            widths.format(len(infos), output.plain(it.client_id), describe(it.version), file)
        )
    if infos:
        _judge(infos)
    return EXIT_LEFT_OUT if silent else 0


async def _members(admin: Admin, group: str, broker: str | None) -> Iterable[Connection]:
    if broker is not None:
        return await admin.groups.members(group, broker.strip())
    online = await admin.groups.connection(group)
    if online is None:
        text = f"Not found the consumer group connection: {group[:80]}"
        raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, text)
    return online.connections


def _write(folder: Path, client_id: str, text: str) -> Path:
    """Write what a member says; its id is what a stranger may have chosen."""
    name = "".join(it if it.isalnum() or it in "@#._-%" else "_" for it in client_id)[:200]
    if name.strip(".") == "":
        raise NotFound(f"{client_id[:80]!r} is no name for a file")
    try:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    except OSError as error:
        raise UsageError(f"{folder / name} cannot be written: {error.strerror}") from error
    return folder / name


def _judge(infos: Mapping[str, RunningInfo]) -> None:
    """Say whether members agree, and which queues stand still."""
    if not _agree(infos):
        output.line("\n\nWARN: Different subscription in the same group of consumer!!!")
        return
    output.line("\n\nSame subscription in the same group of consumer\n\nRebalance OK")
    for client_id, info in sorted(infos.items()):
        for line in _stuck(client_id, info):
            output.line(line)


def _agree(infos: Mapping[str, RunningInfo]) -> bool:
    first = infos[min(infos)]
    age_ms = SystemClock().now_ms() - int(first.properties.get(_STARTED) or 0)
    if not is_push(first) or age_ms <= _SETTLED_MS:
        return True
    wanted = [
        {(str(it.get("topic")), str(it.get("subString"))) for it in info.subscriptions}
        for info in infos.values()
    ]
    return all(it == wanted[0] for it in wanted)


def is_push(info: RunningInfo) -> bool:
    """Tell whether a member is pushed its messages."""
    return info.properties.get(_TYPE, "").endswith("PASSIVELY")


def _stuck(client_id: str, info: RunningInfo) -> list[str]:
    """Return a line for each queue that a member does not get on with."""
    if not is_push(info):
        return []
    now = SystemClock().now_ms()
    ordered = info.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true"
    found: list[str] = []
    for queue, held in sorted(info.queues.items()):
        place = f"{output.plain(client_id)} {queue_text(queue)}"
        if not ordered:
            quiet = now - int(held.get("lastConsumeTimestamp") or 0)
            if quiet > _STUCK_MS and int(held.get("cachedMsgCount") or 0) > 0:
                found.append(f"{place} can't consume for a while, maybe blocked, {quiet}ms")
        elif not held.get("locked"):
            quiet = now - int(held.get("lastLockTimestamp") or 0)
            found.append(f"{place} can't lock for a while, {quiet}ms")
        elif held.get("droped") and int(held.get("tryUnlockTimes") or 0) > 0:
            found.append(f"{place} unlock {held['tryUnlockTimes']} times, still failed")
    return found


def shown(info: RunningInfo) -> str:
    """Return what a member says of itself as the tool prints it."""
    lines = ["#Consumer Properties#"]
    lines += [f"{key:<40}: {it}" for key, it in sorted(info.properties.items())]
    lines += ["", "", "#Consumer Subscription#"]
    ordered = sorted(info.subscriptions, key=lambda it: str(it.get("topic")))
    lines += [
        f"{place:03d} Topic: {it.get('topic')!s:<40}"
        f" ClassFilter: {java_bool(it.get('classFilterMode')):<8}"
        f" SubExpression: {it.get('subString')}"
        for place, it in enumerate(ordered, 1)
    ]
    head = f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  "
    queues = sorted(info.queues.items())
    lines += ["", "", "#Consumer Offset#", f"{head}{'#Consumer Offset':<20}"]
    lines += [f"{_at(queue, 32)}  {held.get('commitOffset', 0):<20}" for queue, held in queues]
    lines += ["", "", "#Consumer MQ Detail#", f"{head}{'#ProcessQueueInfo':<20}"]
    lines += [f"{_at(queue, 64)}  {_process_queue(held)}" for queue, held in queues]
    lines += ["", "", "#Consumer Pop Detail#"]
    lines.append(f"{'#Topic':<32}  {'#Broker Name':<32}  {'#QID':<4}  {'#ProcessQueueInfo':<20}")
    lines += ["", "", "#Consumer RT&TPS#", _rates_head()]
    lines += [_rates(topic, it) for topic, it in sorted(info.status.items())]
    lines += ["", "", "#User Consume Info#"]
    lines += [f"{key:<40}: {it}" for key, it in sorted(info.user_info.items())]
    if info.stacks is not None:
        lines += ["", "", "#Consumer jstack#", info.stacks]
    return "\n".join(output.plain(line) for text in lines for line in text.split("\n"))


def _at(queue: MessageQueue, width: int) -> str:
    return f"{queue.topic:<{width}}  {queue.broker_name:<32}  {queue.queue_id:<4}"


def _process_queue(held: Mapping[str, Any]) -> str:
    whole = [f"{name}={held.get(name, 0)}" for name in _WHOLE]
    rest = [
        f"locked={java_bool(held.get('locked'))}",
        f"tryUnlockTimes={held.get('tryUnlockTimes', 0)}",
        f"lastLockTimestamp={java_stamp(int(held.get('lastLockTimestamp') or 0))}",
        f"droped={java_bool(held.get('droped'))}",
        f"lastPullTimestamp={java_stamp(int(held.get('lastPullTimestamp') or 0))}",
        f"lastConsumeTimestamp={java_stamp(int(held.get('lastConsumeTimestamp') or 0))}",
    ]
    return f"ProcessQueueInfo [{', '.join([*whole, *rest])}]"


def _rates_head() -> str:
    return (
        f"{'#Topic':<64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14}"
        f" {'#ConsumeOK TPS':>14} {'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}"
    )


def _rates(topic: str, found: Mapping[str, Any]) -> str:
    def rate(name: str) -> float:
        return float(found.get(name) or 0)

    return (
        f"{topic:<32}  {rate('pullRT'):>14.2f} {rate('pullTPS'):>14.2f}"
        f" {rate('consumeRT'):>14.2f} {rate('consumeOKTPS'):>14.2f}"
        f" {rate('consumeFailedTPS'):>18.2f} {int(rate('consumeFailedMsgs')):>25}"
    )
