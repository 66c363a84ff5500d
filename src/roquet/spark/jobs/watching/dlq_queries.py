"""What `dlq` asks of dead letters, retries and originals, in SQL."""

from __future__ import annotations

from typing import Final

# The unique key stays the same through retries; messages without one are known by the id that
# the first copy had. A message that a consumer of 4.x sent back by itself names its topic in
# RETRY_TOPIC, one that a timer or a transaction gave up in DLQ_ORIGIN_TOPIC.
LETTERS: Final = """
select substring(topic, 6) as `group`,
  coalesce(properties['RETRY_TOPIC'], properties['DLQ_ORIGIN_TOPIC'], '') as originTopic,
  coalesce(properties['ORIGIN_MESSAGE_ID'], properties['DLQ_ORIGIN_MESSAGE_ID'], '')
    as originMsgId,
  coalesce(nullif(uniqKey, ''), properties['ORIGIN_MESSAGE_ID'],
    properties['DLQ_ORIGIN_MESSAGE_ID'], msgId) as identity,
  brokerName, queueId, queueOffset, msgId, coalesce(uniqKey, '') as uniqKey, keys, tags,
  properties, bornTimestamp, storeTimestamp, bornHost, storeHost, reconsumeTimes, sysFlag,
  bodyCRC, body,
  greatest(reconsumeTimes - 1, 0) as retries,
  properties[:causeProperty] as named
from {read} where startswith(topic, '%DLQ%')
  and (:groups = '' or array_contains(split(:groups, ','), substring(topic, 6)))
  and (:begin < 0 or unix_millis(storeTimestamp) >= :begin)
  and (:end < 0 or unix_millis(storeTimestamp) < :end)"""
ATTEMPTS: Final = """
select distinct substring(r.topic, 8) as `group`, l.identity, r.reconsumeTimes as attempt,
  r.storeTimestamp, r.brokerName, r.queueId, r.queueOffset
from {read} r join (select distinct `group`, identity from {letters}) l
  on substring(r.topic, 8) = l.`group`
  and coalesce(nullif(r.uniqKey, ''), r.properties['ORIGIN_MESSAGE_ID'], r.msgId) = l.identity"""
# The same unique key may be in a topic more than once; the copy that the letter names wins.
ORIGINALS: Final = """
select topic, identity, brokerName, queueId, queueOffset, msgId, storeTimestamp, bodyCRC from (
  select o.topic, l.identity, o.brokerName, o.queueId, o.queueOffset, o.msgId, o.storeTimestamp,
    o.bodyCRC, row_number() over (partition by o.topic, l.identity
      order by o.msgId = l.originMsgId desc, o.storeTimestamp, o.queueOffset) as place
  from {read} o join (select originTopic, identity, max(originMsgId) as originMsgId
                      from {letters} group by originTopic, identity) l
    on o.topic = l.originTopic
    and (o.uniqKey = l.identity or (coalesce(o.uniqKey, '') = '' and o.msgId = l.identity))
) where place = 1"""
CAUSES: Final = """
select `group`, msgId as identity, max_by(code, at) as code, count(*) as failures
from {read} where not success group by `group`, msgId"""
NO_CAUSES: Final = """
select '' as `group`, '' as identity, '' as code, cast(0 as bigint) as failures where false"""
JOINED: Final = """
select l.*, o.brokerName as originBrokerName, o.queueId as originQueueId,
  o.queueOffset as originQueueOffset, o.storeTimestamp as originStoreTimestamp,
  case when o.identity is null then 'gone' when o.bodyCRC = l.bodyCRC then 'found'
    else 'changed' end as original,
  a.attemptsFound, a.firstRetry, a.lastRetry, c.failures,
  case when c.code is not null then lower(c.code) when l.named is not null then l.named
    when l.retries = 0 then 'given up without a retry'
    else concat('failed after ', l.retries, if(l.retries = 1, ' retry', ' retries')) end as cause,
  (unix_millis(l.storeTimestamp) - unix_millis(coalesce(o.storeTimestamp, l.bornTimestamp))) / 1000
    as secondsToDeath
from {letters} l
left join {originals} o on o.topic = l.originTopic and o.identity = l.identity
left join (select `group`, identity, count(distinct attempt) as attemptsFound,
    min(storeTimestamp) as firstRetry, max(storeTimestamp) as lastRetry
  from {attempts} group by `group`, identity) a
  on a.`group` = l.`group` and a.identity = l.identity
left join {causes} c on c.`group` = l.`group` and c.identity = l.identity"""
GROUPED: Final = """
select `group`, originTopic, cause, count(*) as letters, count(distinct identity) as messages,
  count_if(original = 'gone') as originalsGone, min(storeTimestamp) as firstDead,
  max(storeTimestamp) as lastDead, max(retries) as retriesMax,
  percentile_approx(secondsToDeath, 0.5) as secondsToDeathP50,
  max_by(identity, storeTimestamp) as example
from {joined} group by `group`, originTopic, cause"""
# The columns are those of the source, for whoever writes them to a topic again; behind them is
# where each came from. A message that is dead twice is to be sent once.
RESUBMIT: Final = """
select originTopic as topic, brokerName, queueId, queueOffset, msgId, uniqKey, keys, tags,
  map_filter(properties, (name, value) -> not array_contains(split(:reserved, ','), name))
    as properties,
  bornTimestamp, storeTimestamp, bornHost, storeHost, reconsumeTimes, body,
  `group`, cause, original, originMsgId, originBrokerName, originQueueId, originQueueOffset,
  originStoreTimestamp
from (select *, row_number() over (partition by `group`, originTopic, identity
        order by storeTimestamp desc, queueOffset desc) as place from {joined})
where place = 1 and originTopic <> ''"""
OVER_TIME: Final = """
select floor(unix_millis(storeTimestamp) / :step) * :step as at, `group`, count(*) as letters
from {joined} group by floor(unix_millis(storeTimestamp) / :step) * :step, `group`"""
