"""What `lag` asks of its snapshots, in SQL. Rates are messages a second."""

from __future__ import annotations

from typing import Final

SNAPSHOT: Final = """
select timestamp_millis(:at) as at, coalesce(g.`group`, m.`group`) as `group`,
  coalesce(g.topic, m.topic) as topic, coalesce(g.brokerName, m.brokerName) as brokerName,
  coalesce(g.queueId, m.queueId) as queueId, g.offset, g.minOffset, g.maxOffset, g.lag,
  g.lastStoreTimestamp,
  m.clientId, m.address, m.lastPullTimestamp
from {groups} g full outer join (
  select *, row_number() over (
    partition by `group`, topic, brokerName, queueId, if(queueId is null, clientId, '')
    order by lastPullTimestamp desc nulls last, clientId) as place from {members}) m
  on g.`group` = m.`group` and g.topic = m.topic and g.brokerName = m.brokerName
  and g.queueId = m.queueId
where coalesce(m.place, 1) = 1"""
CHOSEN: Final = """
select distinct * from {all}
where (:groups = '' or array_contains(split(:groups, ','), `group`))
  and (:topics = '' or topic is null or array_contains(split(:topics, ','), topic))
  and (:pattern = '' or topic is null or regexp_like(topic, concat('^(?:', :pattern, ')$')))
  and (:begin < 0 or unix_millis(at) >= :begin) and (:end < 0 or unix_millis(at) < :end)"""
# An offset that goes back, or a queue that is shorter than it was or another one, is no rate.
STEPS: Final = """
select *, if(back, null, try_divide(moved, seconds)) as consumedRate,
  if(back, null, try_divide(came, seconds)) as producedRate
from (
  select *, coalesce(anew, false) or coalesce(moved < 0 or came < 0, false) as back from (
    select *, offset - lag(offset) over w as moved, maxOffset - lag(maxOffset) over w as came,
      (unix_millis(at) - lag(unix_millis(at)) over w) / 1000 as seconds
    from {chosen} where offset is not null
    window w as (partition by `group`, topic, brokerName, queueId order by at)))"""
HISTORY: Final = """
select *, case when messagesLeft = 0 then 0.0
  when consumedRate > producedRate then messagesLeft / (consumedRate - producedRate) end
  as secondsToCatchUp
from (select `group`, topic, at, count(*) as queues, coalesce(sum(`lag`), 0) as messagesLeft,
  sum(consumedRate) as consumedRate, sum(producedRate) as producedRate,
  count_if(back) as backward from {steps} group by `group`, topic, at)"""
# A queue stands still since its offset last moved or it last had nothing left.
QUEUES: Final = """
select *, case
  when seen < unix_millis(newest) then 'vanished'
  when maxOffset is null then 'gone'
  when offset < minOffset then 'lost'
  when offset > maxOffset then 'beyond'
  when messagesLeft = 0 then 'caught up'
  when consumedRate is null then 'unknown'
  when consumedRate = 0 and stoppedSeconds >= :stopped then 'stopped'
  when producedRate > consumedRate then 'falling behind'
  when consumedRate = 0 then 'waiting'
  else 'catching up' end as state,
  case when messagesLeft = 0 then 0.0 when consumedRate > producedRate
    then messagesLeft / (consumedRate - producedRate) end as secondsToCatchUp
from (
  select s.`group`, topic, brokerName, queueId, newest,
    max(unix_millis(at)) as seen, max_by(offset, at) as offset, max_by(minOffset, at) as minOffset,
    max_by(maxOffset, at) as maxOffset, coalesce(max_by(`lag`, at), 0) as messagesLeft,
    max_by(clientId, at) as clientId,
    try_divide(sum(if(recent and not back, moved, null)),
      sum(if(recent and not back, seconds, null))) as consumedRate,
    try_divide(sum(if(recent and not back, came, null)),
      sum(if(recent and not back, seconds, null))) as producedRate,
    count_if(recent and back and not coalesce(anew, false)) as backward,
    count_if(recent and anew) as anew,
    (unix_millis(newest) - coalesce(max(if(moved <> 0 or `lag` = 0, unix_millis(at), null)),
      min(unix_millis(at)))) / 1000 as stoppedSeconds
  from (select *, at > newest - make_dt_interval(0, 0, 0, :window) as recent
        from {steps} cross join (select max(at) as newest from {chosen})) s
  group by s.`group`, topic, brokerName, queueId, newest)"""
MEMBERS: Final = """
select *, case when queues = 0 then 'without queues'
  when stoppedQueues > 0 then 'stopped'
  when messagesLeft > :ignore and consumedRate < :slow / 100
    * avg(if(queues > 0, consumedRate, null)) over (partition by `group`) then 'slow'
  when messagesLeft = 0 then 'caught up' else 'consuming' end as state
from (
  select m.`group`, m.clientId, max(m.address) as address, count(m.queueId) as queues,
    coalesce(sum(q.messagesLeft), 0) as messagesLeft,
    coalesce(sum(q.consumedRate), 0.0) as consumedRate,
    count_if(q.state = 'stopped') as stoppedQueues,
    max(m.lastPullTimestamp) as lastPullTimestamp
  from (select * from {chosen} where clientId is not null
          and at = (select max(at) from {chosen})) m
  left join {queues} q on m.`group` = q.`group` and m.topic = q.topic
    and m.brokerName = q.brokerName and m.queueId = q.queueId
  group by m.`group`, m.clientId)"""
ALERTS: Final = """
select 'lag' as kind, `group`, topic, cast(null as string) as brokerName,
  cast(null as int) as queueId, cast(null as string) as clientId,
  cast(messagesLeft as double) as value, cast(:maxLag as double) as threshold,
  concat(messagesLeft, ' messages left') as detail
from {now} where messagesLeft > :maxLag
union all
select 'catch-up', `group`, topic, null, null, null, secondsToCatchUp, cast(:maxCatchUp as double),
  if(secondsToCatchUp is null, 'is not catching up: more comes than is consumed',
    concat('catches up in ', cast(round(secondsToCatchUp) as bigint), ' s'))
from {now} where messagesLeft > :ignore and consumedRate is not null
  and coalesce(secondsToCatchUp > :maxCatchUp, true)
union all
select state, `group`, topic, brokerName, queueId, clientId,
  case state when 'stopped' then stoppedSeconds when 'lost' then minOffset - offset
    when 'beyond' then offset - maxOffset end,
  if(state = 'stopped', cast(:stopped as double), null),
  case state
    when 'stopped' then concat(messagesLeft, ' messages left, none consumed for ',
      cast(round(stoppedSeconds) as bigint), ' s')
    when 'lost' then concat(minOffset - offset, ' messages were deleted before they were consumed')
    when 'beyond' then concat('offset ', offset, ' is behind the end of the queue, ', maxOffset,
      ': what is left is not known')
    when 'gone' then concat('offset ', offset, ' of a queue that is not there')
    else 'is in earlier snapshots, not in the last' end
from {queues} where state in ('stopped', 'lost', 'beyond', 'gone', 'vanished')
union all
select 'backward', `group`, topic, brokerName, queueId, clientId, backward, null,
  'the offset went back, or the queue became shorter'
from {queues} where backward > 0
union all
select 'made anew', `group`, topic, brokerName, queueId, clientId, anew, null,
  'is not the queue of the snapshot before: its topic was made anew, or a replica with less became'
  || ' master; rates are of the time since'
from {queues} where anew > 0
union all
select if(state = 'slow', 'slow member', 'member without queues'), `group`, null, null, null,
  clientId, consumedRate, if(state = 'slow', cast(:slow as double), null),
  if(state = 'slow', concat(messagesLeft, ' messages left, ', round(consumedRate, 1), ' a second'),
    'holds no queue: there are more members than queues, or it does not answer')
from {members} where state in ('slow', 'without queues')
union all
select 'no offsets', `group`, null, null, null, null, null, null,
  'members are there, and nothing was ever committed'
from {chosen} group by `group`
having count(offset) = 0
"""
NOW: Final = """
select `group`, topic, count(*) as queues, sum(messagesLeft) as messagesLeft,
  sum(consumedRate) as consumedRate, sum(producedRate) as producedRate,
  count_if(state = 'stopped') as stoppedQueues,
  case when sum(messagesLeft) = 0 then 0.0 when sum(consumedRate) > sum(producedRate)
    then sum(messagesLeft) / (sum(consumedRate) - sum(producedRate)) end as secondsToCatchUp
from {queues} where state <> 'vanished' group by `group`, topic"""
