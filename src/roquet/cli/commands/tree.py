"""Every command over a cluster: words, arguments, and the function that does it.

Help, completion and the reference page are made from these rows.
"""

from __future__ import annotations

import argparse

from roquet.cli.commands.access import ACCOUNTS, USERS
from roquet.cli.commands.declared import Row, argument
from roquet.cli.flags import count, signed
from roquet.protocol.names import TRACE_TOPIC

NOUNS = {
    "topic": "list, show, create, alter and delete topics",
    "group": "list and show consumer groups, and let them go on elsewhere",
    "msg": "find messages by id, key or time; see their trace; send them again",
    "dlq": "look at messages that groups gave up, and send them again",
    "namesrv": "run a name server; or look at name servers and change settings",
    "namesrv config": "show and change the settings of running name servers",
    "user": "users of 5.x: create, show, alter, delete; accounts of 4.x: ls, set, rm",
    "acl": "what users of 5.x may do: ls, grant, revoke; which addresses need no account: allow",
    "auth": "take users and policies from another broker: import",
    "context": "name clusters, and choose the one that commands talk to",
    "bench": "put load on a topic",
    "broker": "run a broker; or look at brokers, change settings, drain one",
    "broker config": "show and change the settings of a running broker",
    "cluster": "look at the cluster as a whole",
    "ha": "look at replication",
}

_TOPIC = argument("topic", metavar="TOPIC")
_GROUP = argument("group", metavar="GROUP")
_BROKER = argument("broker", metavar="BROKER", help="a broker's name, or its address")
_ALL = argument(
    "-a", "--all", dest="everything", action="store_true", help="those of the system as well"
)
_CLUSTER = argument("--cluster", help="only in this cluster")
_QUEUES = "queues on each broker (%(default)s)"
_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED", "LITE", "UNSPECIFIED")
_OF_TOPIC = argument("-t", "--topic", help="only of this topic")

_SINCE = argument("--since", metavar="TIME", help="given up then or later: 1d (back), a date")
_AT_MOST = argument("-c", "--count", type=count, default=1000, help="at most (%(default)s)")
_NAME = argument("name", metavar="NAME", help="the name of the cluster")
_BENCH_TOPIC = argument(
    "topic", metavar="TOPIC", nargs="?", default="roquet_bench", help="(%(default)s)"
)
_RECALL = """\
Take a message back that waits for its time. The broker has to allow it
(recallMessageEnable), and takes the recall in: a message that is due at this moment may
be delivered all the same."""
_DLQ = """\
Send messages that a group gave up again. They go to that group alone, under the
topic that they had, unless --to names a topic. They stay where they are as well: a
dead-letter topic is only ever appended to."""
_ROLE = """\
First make the master a slave, then a slave that has everything (roquet ha status) the
master; what is sent in between is refused and sent again by clients. The old master
follows the new one by itself, once the name servers know it. While the old master is
dead, make a slave the master, and start the old one as a slave. The role is written into
the broker's configuration file."""
_FORGET = """\
Have every name server forget a broker that left. Until then cluster health, the console
and Spark jobs miss it, since what only it has cannot be read. One that comes back is
there again."""
_ORDER = argument(
    "--order", action=argparse.BooleanOptionalAction, help="its messages are consumed in order"
)

_NEW = """\
Write property files for several brokers of this machine: a broker has one event loop,
so more cores carry more brokers. Each has ports, a folder and a name of its own; a file
that is there is never changed."""

_ALTER = """\
Change what is given of a topic on every master that has it. Messages of
queues that are taken away cannot be read until the queues come back: the command
says how many there are, and asks first."""
_SEEK = """\
Let a group go on elsewhere in a topic, whether its members are online or not.
--preview shows what would happen, queue by queue, and does nothing; without it
the command says how many messages come again or are skipped, and asks."""

TOPICS = (
    Row(("topic", "ls"), "list topics", "topics:ls", (_ALL,)),
    Row(("topic", "get"), "show a topic's queues and what they hold", "topics:get", (_TOPIC,)),
    Row(
        ("topic", "create"),
        "create a topic on every master",
        "topics:create",
        (
            _TOPIC,
            argument("-q", "--queues", type=count, default=8, help=_QUEUES),
            argument("--type", choices=_TYPES, help="what messages it takes, for clients of 5.x"),
            argument("--order", action="store_true", help="its messages are consumed in order"),
            _CLUSTER,
        ),
        about="Create a topic on every master; one that exists is left as it is.",
        prints=False,
    ),
    Row(
        ("topic", "alter"),
        "change a topic",
        "topics:alter",
        (
            _TOPIC,
            argument("-q", "--queues", type=count, help="queues on each broker"),
            argument("--perm", choices=("rw", "r", "w"), help="what clients may do"),
            argument("--type", choices=_TYPES, help="what messages it takes, for clients of 5.x"),
            _ORDER,
            _CLUSTER,
        ),
        about=_ALTER,
        prints=False,
        changes=True,
    ),
    Row(
        ("topic", "rm"),
        "delete a topic",
        "topics:rm",
        (_TOPIC, argument("--broker", help="only on this broker, by its name")),
        prints=False,
        changes=True,
    ),
)

GROUPS = (
    Row(("group", "ls"), "list groups with members and lag", "groups:ls", (_ALL,)),
    Row(("group", "get"), "show a group's configuration", "groups:get", (_GROUP,)),
    Row(("group", "members"), "show who of a group is online", "groups:members", (_GROUP,)),
    Row(
        ("group", "lag"),
        "show how far a group is in each queue",
        "groups:lag",
        (
            _GROUP,
            _OF_TOPIC,
            argument(
                "-w", "--watch", type=count, metavar="SECONDS", help="again after so many seconds"
            ),
        ),
    ),
    Row(
        ("group", "create"),
        "create a group on every master",
        "groups:create",
        (
            _GROUP,
            argument(
                "--retries",
                type=count,
                default=16,
                help="tries before a message is dead (%(default)s)",
            ),
            argument("--order", action="store_true", help="it consumes queues in order"),
        ),
        prints=False,
    ),
    Row(
        ("group", "alter"),
        "change a group",
        "groups:alter",
        (
            _GROUP,
            argument("--retries", type=count, help="tries before a message is dead"),
            _ORDER,
            argument(
                "--enabled", action=argparse.BooleanOptionalAction, help="whether it may consume"
            ),
        ),
        prints=False,
    ),
    Row(
        ("group", "rm"),
        "delete a group",
        "groups:rm",
        (
            _GROUP,
            argument("--offsets", action="store_true", help="forget how far it was, too"),
        ),
        prints=False,
        changes=True,
    ),
    Row(
        ("group", "seek"),
        "let a group go on elsewhere in a topic",
        "groups:seek",
        (
            _GROUP,
            argument("-t", "--topic", required=True, help="the topic"),
            argument(
                "--to",
                metavar="PLACE",
                help="earliest, latest, 1h (back), 2026-11-20T10:00 or Unix milliseconds",
            ),
            argument("--by", type=signed, metavar="N", help="so many messages on, or back (-N)"),
            argument("--queue", metavar="BROKER:ID", help="only this; --to is an offset then"),
            argument("--preview", action="store_true", help="show what it would do, do nothing"),
        ),
        about=_SEEK,
        changes=True,
    ),
    Row(
        ("group", "clone"),
        "give one group the offsets of another",
        "groups:clone",
        (_GROUP, argument("target", metavar="TARGET"), _OF_TOPIC),
        prints=False,
        changes=True,
    ),
)

MESSAGES = (
    Row(
        ("msg", "get"),
        "show a message with all that is kept of it",
        "messages:get",
        (
            argument("id", metavar="ID", help="what pub prints, or an offset id"),
            argument("-t", "--topic", help="its topic; without it all topics are asked"),
        ),
    ),
    Row(
        ("msg", "find"),
        "find messages by key, or by when they were stored",
        "messages:find",
        (
            _TOPIC,
            argument("-k", "--key", help="a key that the producer gave"),
            argument("-t", "--tags", help="only with one of these tags: 'a || b'"),
            argument("--sql", metavar="EXPRESSION", help="only what this SQL92 filter takes"),
            argument("--since", metavar="TIME", help="stored then or later: 10m (back), a date"),
            argument("--until", metavar="TIME", help="stored before: 10m (back), a date (now)"),
            argument("-c", "--count", type=count, default=64, help="at most (%(default)s)"),
        ),
    ),
)

BROKERS = (
    Row(("broker", "ls"), "list brokers with their traffic", "brokers:ls"),
    Row(("broker", "status"), "show what a broker says of itself", "brokers:status", (_BROKER,)),
    Row(
        ("broker", "config", "get"),
        "show settings of a running broker",
        "brokers:get_config",
        (_BROKER, argument("key", metavar="KEY", nargs="?", help="only this one")),
    ),
    Row(
        ("broker", "config", "set"),
        "change settings of a running broker",
        "brokers:set_config",
        (_BROKER, argument("change", metavar="KEY=VALUE", nargs="+")),
        prints=False,
    ),
    Row(
        ("broker", "new"),
        "write property files for several brokers of this machine",
        "upkeep.new_brokers:new",
        (
            argument("folder", metavar="FOLDER", help="where they go, as broker-1.conf ..."),
            argument("-c", "--count", type=count, required=True, help="so many brokers"),
            argument("-n", "--namesrv", required=True, metavar="HOST:PORT", help="name servers"),
            argument("--store", required=True, help="above the brokers' stores"),
            argument("--ip", help="the address that clients are told (brokerIP1)"),
            argument("--name", help="brokers are called NAME-1, NAME-2 (this host's name)"),
            argument("--cluster", default="DefaultCluster", help="(%(default)s)"),
            argument("--port", type=count, default=10911, help="of the first (%(default)s)"),
            argument("--first", type=count, default=1, help="number of the first (%(default)s)"),
        ),
        about=_NEW,
        given="nothing",
        prints=False,
    ),
    Row(
        ("broker", "drain"),
        "have producers leave a broker",
        "brokers:drain",
        (_BROKER,),
        prints=False,
        changes=True,
    ),
    Row(
        ("broker", "forget"),
        "miss a broker no more that was taken away for good",
        "brokers:forget",
        (argument("broker", metavar="BROKER", help="the name of a broker that left"),),
        about=_FORGET,
        prints=False,
        changes=True,
    ),
    Row(
        ("broker", "undrain"),
        "have producers come back to a broker",
        "brokers:undrain",
        (_BROKER,),
        prints=False,
    ),
    Row(
        ("cluster", "health"),
        "show problems first; exit code 1 when there are some",
        "brokers:health",
    ),
    Row(
        ("ha", "status"),
        "show how far each slave has copied",
        "brokers:ha",
        (argument("broker", metavar="BROKER", nargs="?", help="only of this master"),),
    ),
    Row(
        ("ha", "role"),
        "have a running broker become a master or a slave",
        "brokers:role",
        (
            _BROKER,
            argument("role", choices=("master", "slave"), help="what it is to become"),
            argument("--id", type=count, default=1, help="a slave's id in its group (%(default)s)"),
            argument(
                "--sync", action="store_true", help="as a master, acknowledge copied messages only"
            ),
        ),
        changes=True,
        about=_ROLE,
        prints=False,
    ),
)

AGAIN = (
    Row(
        ("msg", "recall"),
        "take a delayed message back before it is due",
        "messages:recall",
        (argument("handle", metavar="HANDLE", help="what pub --delay prints"),),
        about=_RECALL,
        given="client",
        prints=False,
        changes=True,
    ),
    Row(
        ("msg", "resend"),
        "send a copy of a message",
        "dlq:resend",
        (
            argument("id", metavar="ID", help="what pub prints, or an offset id"),
            argument("-t", "--topic", help="its topic; without it all topics are asked"),
            argument("--to", metavar="TOPIC", help="send it there (where it was sent first)"),
            argument("-g", "--group", help="only this group gets it"),
        ),
        changes=True,
    ),
    Row(
        ("msg", "trace"),
        "show what clients that trace wrote about a message",
        "tracing:trace",
        (
            argument("id", metavar="ID", help="what pub prints, or an offset id"),
            argument(
                "-t",
                "--trace-topic",
                default=TRACE_TOPIC,
                metavar="TOPIC",
                help="where traces are (%(default)s)",
            ),
            argument("-c", "--count", type=count, default=64, help="at most (%(default)s)"),
        ),
    ),
    Row(("dlq", "ls"), "list groups with messages that they gave up", "dlq:ls"),
    Row(("dlq", "show"), "show what a group gave up", "dlq:show", (_GROUP, _SINCE, _AT_MOST)),
    Row(
        ("dlq", "resend"),
        "send what a group gave up again, to that group alone",
        "dlq:resend_dead",
        (
            _GROUP,
            argument("id", metavar="ID", nargs="*", help="ids as dlq show prints them"),
            argument(
                "--all", dest="everything", action="store_true", help="all that dlq show shows"
            ),
            argument("--to", metavar="TOPIC", help="send to this topic, to all its groups"),
            _SINCE,
            _AT_MOST,
        ),
        about=_DLQ,
        changes=True,
    ),
)

SERVERS = (
    Row(("namesrv", "ls"), "list name servers and whether they answer", "name_servers:ls"),
    Row(
        ("namesrv", "config", "get"),
        "show settings of running name servers",
        "name_servers:get_config",
        (argument("key", metavar="KEY", nargs="?", help="only this one"),),
    ),
    Row(
        ("namesrv", "config", "set"),
        "change settings of every running name server",
        "name_servers:set_config",
        (argument("change", metavar="KEY=VALUE", nargs="+"),),
        prints=False,
        changes=True,
    ),
)

AROUND = (
    Row(("context", "ls"), "list named clusters", "tools.context:ls", given="nothing"),
    Row(
        ("context", "use"),
        "talk to a cluster from now on",
        "tools.context:use",
        (_NAME,),
        given="nothing",
        prints=False,
    ),
    Row(
        ("context", "add"),
        "name a cluster, or change one",
        "tools.context:add",
        (
            _NAME,
            argument("address", metavar="HOST:PORT", help="name servers, separated by ';'"),
            argument("--access-key", help="the account that signs requests"),
            argument("--secret-file", metavar="FILE", help="its secret; -: a line of the input"),
            argument("--tls", action="store_true", help="connect over TLS"),
            argument("--ca", metavar="FILE", help="who signs the servers' certificates, PEM"),
            argument("--cert", metavar="FILE", help="certificate to show to the servers, PEM"),
            argument("--key", metavar="FILE", help="its private key, when in another file"),
        ),
        given="nothing",
        prints=False,
    ),
    Row(
        ("context", "rm"),
        "forget a named cluster",
        "tools.context:rm",
        (_NAME,),
        given="nothing",
        prints=False,
        changes=True,
    ),
    Row(
        ("top",),
        "show rates and lag again and again, problems first",
        "tools.top:top",
        (
            argument(
                "--every",
                type=count,
                default=2,
                metavar="SECONDS",
                help="seconds between updates (%(default)s)",
            ),
            argument("-c", "--count", type=count, help="end after COUNT updates"),
        ),
    ),
    Row(
        ("bench", "send"),
        "send messages; show rate and latency",
        "tools.bench:send",
        (
            _BENCH_TOPIC,
            argument("-c", "--count", type=count, default=10_000, help="so many (%(default)s)"),
            argument("--size", type=count, default=1024, help="bytes of a body (%(default)s)"),
            argument(
                "--in-flight", type=count, default=64, help="sends at the same time (%(default)s)"
            ),
        ),
        given="client",
    ),
    Row(
        ("bench", "recv"),
        "consume messages; show rate and latency",
        "tools.bench:recv",
        (
            _BENCH_TOPIC,
            argument("-c", "--count", type=count, default=10_000, help="so many (%(default)s)"),
            argument("-g", "--group", default="roquet_bench", help="the group (%(default)s)"),
        ),
        given="client",
    ),
    Row(
        ("cheat",),
        "show what people type most",
        "tools.cheat:cheat",
        (argument("subject", metavar="SUBJECT", nargs="?", help="start, messages, ..."),),
        given="nothing",
        prints=False,
    ),
)

ROWS = TOPICS + GROUPS + MESSAGES + AGAIN + BROKERS + SERVERS + ACCOUNTS + USERS + AROUND
