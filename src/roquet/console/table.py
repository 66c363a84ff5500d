"""Every view and every action of the console, with its role. There is nothing else to ask for."""

from __future__ import annotations

from roquet.console.declared import Action, Field, View
from roquet.console.roles import Role
from roquet.console.views import (
    access,
    alerts,
    dead,
    groups,
    messages,
    overview,
    policies,
    proxies,
    servers,
    timers,
    topics,
    users,
)
from roquet.console.views.paging import FILTER, PAGE
from roquet.protocol.names import TRACE_TOPIC

_VIEWER, _OPERATOR, _ADMINISTRATOR = Role.VIEWER, Role.OPERATOR, Role.ADMINISTRATOR

_NAME = Field(name="name", about="its name", required=True)
_TOPIC = Field(name="topic", about="the topic", required=True)
_SOME_TOPIC = Field(name="topic", about="the topic")
_GROUP = Field(name="group", about="the consumer group", required=True)
_ID = Field(name="id", about="id of a message, of either kind", required=True, size_max=128)
_ADDRESS = Field(name="address", about="a broker's address", required=True)
_CONFIRM = Field(name="confirm", about="the same name again")
_TO = Field(name="to", about="earliest, latest, 1h (back), a date or Unix milliseconds")
_PERM = Field(name="perm", about="what clients may do", choices=tuple(topics.PERMS))
_TYPE = Field(name="type", about="what messages it takes", choices=topics.TYPES)
_RIGHTS = "DENY, PUB, SUB or PUB|SUB"


def _queues(default: int | None) -> Field:
    about = "queues on each broker"
    return Field(name="queues", about=about, kind="integer", low=1, high=65_535, default=default)


def _retries(default: int | None) -> Field:
    about = "tries before a message is dead"
    return Field(name="retries", about=about, kind="integer", low=0, high=10_000, default=default)


VIEWS = (
    View(
        path="/",
        title="Overview",
        role=_VIEWER,
        show=overview.overview,
        template="cluster/overview.html",
    ),
    View(
        path="/topics",
        title="Topics",
        role=_VIEWER,
        show=topics.topics,
        template="topics/topics.html",
        fields=(
            Field(name="kind", about="of which kind", choices=topics.KINDS, default="user"),
            FILTER,
            PAGE,
        ),
    ),
    View(
        path="/topic",
        title="Topic",
        role=_VIEWER,
        show=topics.topic,
        template="topics/topic.html",
        fields=(_NAME,),
    ),
    View(
        path="/publish",
        title="Publish a message",
        role=_OPERATOR,
        show=messages.draft,
        template="topics/publish.html",
        fields=(_TOPIC, Field(name="id", about="a message to begin with", size_max=128)),
    ),
    View(
        path="/groups",
        title="Consumer groups",
        role=_VIEWER,
        show=groups.groups,
        template="groups/groups.html",
        fields=(
            Field(name="system", about="the system's as well", kind="boolean", default=False),
            FILTER,
            PAGE,
        ),
    ),
    View(
        path="/group",
        title="Consumer group",
        role=_VIEWER,
        show=groups.group,
        template="groups/group.html",
        fields=(_NAME,),
    ),
    View(
        path="/group/member",
        title="Member of a group",
        role=_VIEWER,
        show=groups.member,
        template="groups/member.html",
        fields=(
            _GROUP,
            Field(name="client", about="the client's id", required=True),
            Field(name="stacks", about="its threads as well", kind="boolean", default=False),
        ),
    ),
    View(
        path="/group/seek",
        title="Preview of an offset reset",
        role=_VIEWER,
        show=groups.preview,
        template="groups/seek.html",
        fields=(
            _GROUP,
            _TOPIC,
            Field(name="to", about=_TO.about, required=True),
        ),
    ),
    View(
        path="/messages",
        title="Messages",
        role=_VIEWER,
        show=messages.search,
        template="messages/messages.html",
        fields=(
            _SOME_TOPIC,
            Field(name="id", about="id of a message", size_max=128),
            Field(name="key", about="a key that the producer gave"),
            Field(name="since", about="stored then or later: 1h (back), a date", default="1h"),
            Field(name="until", about="stored before"),
            Field(name="tag", about="with one of these tags: a || b"),
            Field(name="sql", about="that this SQL92 filter takes", size_max=1000),
            Field(name="text", about="whose body has this in it"),
        ),
    ),
    View(
        path="/message",
        title="Message",
        role=_VIEWER,
        show=messages.message,
        template="messages/message.html",
        fields=(_SOME_TOPIC, _ID),
    ),
    View(
        path="/trace",
        title="Trace of a message",
        role=_VIEWER,
        show=messages.trace,
        template="messages/trace.html",
        fields=(
            Field(name="id", about="id of a message, of either kind", size_max=128),
            Field(name="topic", about="the topic of traces", default=TRACE_TOPIC),
        ),
    ),
    *dead.VIEWS,
    View(
        path="/brokers",
        title="Brokers",
        role=_VIEWER,
        show=servers.brokers,
        template="cluster/brokers.html",
    ),
    View(
        path="/broker",
        title="Broker",
        role=_VIEWER,
        show=servers.broker,
        template="cluster/broker.html",
        fields=(
            _ADDRESS,
            Field(name="all", about="defaults as well", kind="boolean", default=False),
        ),
    ),
    View(
        path="/name-servers",
        title="Name servers",
        role=_VIEWER,
        show=servers.name_servers,
        template="cluster/name_servers.html",
    ),
    proxies.VIEW,
    View(
        path="/producers",
        title="Producers",
        role=_VIEWER,
        show=servers.producers,
        template="groups/producers.html",
        fields=(FILTER, PAGE),
    ),
    *timers.VIEWS,
    View(
        path="/alerts",
        is_own=True,
        title="Alerts",
        role=_VIEWER,
        show=alerts.alerts,
        template="cluster/alerts.html",
    ),
    View(
        path="/accounts",
        title="Accounts of brokers",
        role=_ADMINISTRATOR,
        show=access.accounts,
        template="people/accounts.html",
    ),
    policies.VIEW,
    View(
        path="/people",
        is_own=True,
        title="Who is signed in",
        role=_ADMINISTRATOR,
        show=access.people,
        template="people/people.html",
    ),
    View(
        path="/audit",
        is_own=True,
        title="Audit log",
        role=_ADMINISTRATOR,
        show=overview.audit,
        template="people/audit.html",
        fields=(FILTER,),
    ),
)

DATA = (
    View(
        path="/rates",
        title="Rates of the last minutes",
        role=_VIEWER,
        show=overview.rates,
        template="",
    ),
    View(
        path="/group/lag",
        title="Lag of a group in the last minutes",
        role=_VIEWER,
        show=groups.lag,
        template="",
        fields=(_NAME,),
    ),
)
"""Views of the API alone."""

DOWNLOADS = (*dead.DOWNLOADS,)

ACTIONS = (
    Action(
        path="/topic/create",
        title="Create a topic",
        role=_OPERATOR,
        do=topics.create,
        fields=(
            _NAME,
            _queues(8),
            _TYPE,
            Field(name="order", about="consumed in order", kind="boolean", default=False),
        ),
    ),
    Action(
        path="/topic/alter",
        title="Change a topic",
        role=_OPERATOR,
        do=topics.alter,
        fields=(_NAME, _queues(None), _PERM, _TYPE, _CONFIRM),
    ),
    Action(
        path="/topic/delete",
        title="Delete a topic",
        role=_ADMINISTRATOR,
        do=topics.delete,
        fields=(_NAME, _CONFIRM, Field(name="broker", about="only on this broker, by its name")),
    ),
    Action(
        path="/topic/publish",
        title="Publish a message",
        role=_OPERATOR,
        do=topics.publish,
        fields=(
            _TOPIC,
            Field(
                name="body",
                about="text of the message",
                required=True,
                size_max=1 << 20,
                secret=True,
            ),
            Field(name="tag", about="its tag", size_max=128),
            Field(name="keys", about="its keys, separated by spaces", size_max=1000),
            Field(name="properties", about="lines of name=value", size_max=8192, secret=True),
            Field(
                name="delay_level",
                about="level of delay, 0 for none",
                kind="integer",
                low=0,
                high=18,
                default=0,
            ),
            Field(
                name="delay",
                about="seconds for which it waits, 0 for none",
                kind="integer",
                low=0,
                high=topics.DELAY_MAX_S,
                default=0,
            ),
        ),
    ),
    Action(
        path="/group/create",
        title="Create a group",
        role=_OPERATOR,
        do=groups.create,
        fields=(
            _NAME,
            _retries(16),
            Field(name="order", about="consumes in order", kind="boolean", default=False),
        ),
    ),
    Action(
        path="/group/alter",
        title="Change a group",
        role=_OPERATOR,
        do=groups.alter,
        fields=(
            _NAME,
            _retries(None),
            Field(name="enabled", about="whether it may consume", kind="boolean"),
        ),
    ),
    Action(
        path="/group/delete",
        title="Delete a group",
        role=_ADMINISTRATOR,
        do=groups.delete,
        fields=(
            _NAME,
            _CONFIRM,
            Field(name="offsets", about="its offsets, too", kind="boolean", default=False),
        ),
    ),
    Action(
        path="/group/seek",
        title="Reset a group's offsets",
        role=_OPERATOR,
        do=groups.seek,
        fields=(
            _GROUP,
            _TOPIC,
            _TO,
            Field(name="exact", about="broker:queue:offset", kind="texts", high=1000),
        ),
    ),
    Action(
        path="/message/resend",
        title="Send a message again",
        role=_OPERATOR,
        do=messages.resend,
        fields=(
            _SOME_TOPIC,
            _ID,
            Field(name="to", about="another topic"),
            Field(name="group", about="this group alone"),
        ),
    ),
    Action(
        path="/message/consume",
        title="Have a member consume a message",
        role=_OPERATOR,
        do=messages.consume,
        fields=(
            _SOME_TOPIC,
            _ID,
            _GROUP,
            Field(name="client", about="the client's id", required=True),
        ),
    ),
    *dead.ACTIONS,
    *timers.ACTIONS,
    Action(
        path="/broker/set",
        title="Change a setting of a broker",
        role=_ADMINISTRATOR,
        do=servers.set_broker,
        fields=(
            _ADDRESS,
            Field(name="key", about="the setting", required=True),
            Field(name="value", about="its new value", size_max=1000),
            Field(name="all", about="where the page goes on", kind="boolean", default=False),
        ),
    ),
    Action(
        path="/broker/drain",
        is_own=True,  # name servers may check nobody
        title="Have producers leave a broker",
        role=_OPERATOR,
        do=servers.drain,
        fields=(_NAME,),
    ),
    Action(
        path="/broker/undrain",
        is_own=True,  # name servers may check nobody
        title="Have producers come back to a broker",
        role=_OPERATOR,
        do=servers.undrain,
        fields=(_NAME,),
    ),
    Action(
        path="/alerts/forget",
        is_own=True,
        title="Miss a node no more",
        role=_OPERATOR,
        do=alerts.forget,
        fields=(_NAME,),
    ),
    Action(
        path="/alerts/test",
        is_own=True,
        title="Post a test to the webhook",
        role=_OPERATOR,
        do=alerts.test,
    ),
    Action(
        path="/account/put",
        title="Make or change an account",
        role=_ADMINISTRATOR,
        do=access.put_account,
        fields=(
            Field(name="user", about="its access key", required=True),
            Field(name="secret", about="its secret key", secret=True),
            Field(name="admin", about="it may do all", kind="boolean"),
            Field(name="default_topic", about=f"with any topic: {_RIGHTS}"),
            Field(name="default_group", about=f"with any group: {_RIGHTS}"),
            Field(name="topics", about="orders=PUB|SUB,...", size_max=4000),
            Field(name="groups", about="billing=SUB,...", size_max=4000),
            Field(name="white_address", about="it needs no signature from there"),
        ),
    ),
    Action(
        path="/account/delete",
        title="Delete an account",
        role=_ADMINISTRATOR,
        do=access.delete_account,
        fields=(Field(name="user", about="its access key", required=True), _CONFIRM),
    ),
    *policies.ACTIONS,
    *users.ACTIONS,
    Action(
        path="/people/invite",
        is_own=True,
        title="Make a one-time token",
        role=_ADMINISTRATOR,
        do=access.invite,
        fields=(
            Field(name="name", about="for whom", required=True, size_max=64),
            Field(
                name="role", about="as what", choices=tuple(it.word for it in Role), required=True
            ),
        ),
        is_change=False,
    ),
    Action(
        path="/people/dismiss",
        is_own=True,
        title="End somebody's sessions",
        role=_ADMINISTRATOR,
        do=access.dismiss,
        fields=(_NAME,),
        is_change=False,
    ),
)
