"""What `trace` asks of the decoded records, in SQL. Times are those of the clients' clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

READ: Final = "queueOffset,storeTimestamp,bornHost,body"
"""Columns of the trace topic."""
TASKS_A_CORE: Final = 2
"""The trace topic has one queue, as brokers make it: all cores read it."""
# A batch is one record with the ids of its messages; a trace that was sent twice counts once.
SENDS: Final = """
select distinct `group`, topic, explode(split(msgId, ',')) as msgId, tags, keys, host, storeHost,
  bodyLength, messageType, offsetMsgId, success, at as sentAt, costMs
from {events} where kind = 'Pub'"""
CONSUMPTIONS: Final = """
select coalesce(b.`group`, a.`group`) as `group`, p.topic, coalesce(b.msgId, a.msgId) as msgId,
  coalesce(b.keys, a.keys) as keys, coalesce(b.host, a.host) as host,
  coalesce(b.requestId, a.requestId) as requestId, b.retryTimes,
  coalesce(b.at, timestamp_millis(unix_millis(a.at) - a.costMs)) as at, a.costMs,
  coalesce(a.success, false) as success, a.msgId is not null as finished,
  case when a.msgId is null then 'UNFINISHED' else coalesce(a.code, if(a.success, 'SUCCESS',
    'FAILED')) end as code
from (select distinct `group`, msgId, keys, host, requestId, retryTimes, at from {events}
      where kind = 'SubBefore') b
full outer join (select requestId, msgId, max(`group`) as `group`, max(keys) as keys,
    max(host) as host, max(at) as at, max(costMs) as costMs, bool_and(success) as success,
    max(code) as code from {events} where kind = 'SubAfter' group by requestId, msgId) a
  on a.requestId = b.requestId and a.msgId = b.msgId
left join (select msgId, max(topic) as topic from {sends} group by msgId) p
  on p.msgId = coalesce(b.msgId, a.msgId)"""
# End to end: from the beginning of the send to the end of the first consumption that succeeded.
PAIRS: Final = """
select s.`group` as producerGroup, s.topic, s.host as producerHost, c.`group` as consumerGroup,
  c.host as consumerHost, s.msgId, s.sentAt, s.costMs as sendMs,
  unix_millis(c.firstAt) - unix_millis(s.sentAt) as toFirstMs,
  unix_millis(c.doneAt) + c.doneMs - unix_millis(s.sentAt) as latencyMs, c.tries, c.failed, c.doneMs
from (select *, row_number() over (partition by msgId order by sentAt, host) as place
      from {sends}) s
join (select `group`, msgId, min(at) as firstAt, count(*) as tries, count_if(not success) as failed,
    min_by(host, at) filter (where success) as host, min(at) filter (where success) as doneAt,
    coalesce(min_by(costMs, at) filter (where success), 0) as doneMs
  from {consumptions} group by `group`, msgId) c on c.msgId = s.msgId
where s.place = 1"""
LATENCIES: Final = """
select producerGroup, topic, producerHost, consumerGroup, consumerHost, count(*) as messages,
  count(latencyMs) as consumed, sum(failed) as failed, count_if(latencyMs < 0) as negative,
  percentile_approx(latencyMs, 0.5) as p50, percentile_approx(latencyMs, 0.9) as p90,
  percentile_approx(latencyMs, 0.99) as p99, max(latencyMs) as longest,
  percentile_approx(toFirstMs, 0.5) as toFirstP50, percentile_approx(sendMs, 0.5) as sendP50,
  percentile_approx(doneMs, 0.5) as consumeP50
from {pairs} group by producerGroup, topic, producerHost, consumerGroup, consumerHost"""
FAILURES: Final = """
select `group`, topic, host, code, count(*) as consumptions, count(distinct msgId) as messages,
  max(retryTimes) as retriesMax, min(at) as firstAt, max(at) as lastAt,
  max_by(msgId, at) as example
from {consumptions} where not success group by `group`, topic, host, code"""
OVER_TIME: Final = """
select floor(unix_millis(sentAt) / :step) * :step as at, count(*) as messages,
  percentile_approx(latencyMs, 0.5) as p50, percentile_approx(latencyMs, 0.99) as p99
from {pairs} group by floor(unix_millis(sentAt) / :step) * :step order by at"""
FOUND: Final = """
select msgId from (select msgId, sentAt as at, keys from {sends} union all
  select msgId, at, keys from {consumptions})
where msgId = :key or array_contains(split(keys, ' +'), :key)
group by msgId order by max(at) desc limit :most"""
OF_TOPICS: Final = """
select * from {rows} where :topics = '' or array_contains(split(:topics, ','), topic)"""
EVENT_TYPES: Final = {
    "kind": "string",
    "at": "timestamp",
    "region": "string",
    "group": "string",
    "topic": "string",
    "msgId": "string",
    "tags": "string",
    "keys": "string",
    "storeHost": "string",
    "bodyLength": "int",
    "costMs": "int",
    "messageType": "string",
    "offsetMsgId": "string",
    "success": "boolean",
    "requestId": "string",
    "retryTimes": "int",
    "code": "string",
    "transactionId": "string",
    "state": "string",
    "fromCheck": "boolean",
    "reason": "string",
    "raw": "string",
    "host": "string",
    "storeTimestamp": "timestamp",
    "queueOffset": "bigint",
}
"""Columns of decoded records: those of `trace_lines.Event`, and whence they came."""
WHY_NOT: Final = ("reason", "raw")
"""Columns of records that are not understood; a table of events has none."""
DAMAGED_TYPES: Final = {
    name: EVENT_TYPES[name]
    for name in ("kind", "reason", "host", "storeTimestamp", "queueOffset", "raw")
}


def ddl(types: Mapping[str, str]) -> str:
    """Return columns as Spark's DDL text."""
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())


EVENTS: Final = ddl({name: kind for name, kind in EVENT_TYPES.items() if name not in WHY_NOT})
DAMAGED: Final = ddl(DAMAGED_TYPES)
