"""A broker's settings put together: each part is declared where it is used."""

from __future__ import annotations

import dataclasses
import ipaddress
import platform
import socket
from pathlib import Path  # noqa: TC003  (the loader looks at the types)
from typing import TYPE_CHECKING

from roquet.acl.credentials import Credentials, from_environment, variables
from roquet.acl.files import AclConfig, accounts_path
from roquet.auth.config import AuthConfig
from roquet.auth.config import check as check_auth
from roquet.auth.keeping.starting import inner_credentials
from roquet.base.config import Report, load, read_property_file, setting
from roquet.base.errors import UsageError
from roquet.broker.clients.lock_votes import LockConfig
from roquet.broker.light.rules import LightTopicConfig
from roquet.broker.messages.broker_properties import SendConfig
from roquet.broker.messages.schedule import ScheduleConfig
from roquet.broker.metrics.families import FamiliesConfig
from roquet.broker.metrics.watch import SlowGroupConfig
from roquet.broker.network.fast_fail import FastFailConfig
from roquet.broker.network.registration import RegistrationConfig
from roquet.broker.pop.buffer.rules import BufferConfig
from roquet.broker.pop.receive.rules import PopConfig
from roquet.broker.pop.revive_rules import ReviveConfig
from roquet.broker.pull_rules import PullConfig
from roquet.broker.services.clients.assignments import AssignmentConfig
from roquet.broker.services.offsets import OffsetConfig
from roquet.broker.services.query import QueryLimits
from roquet.broker.timers.rules import TimerConfig
from roquet.broker.transactions.verdict import TransactionConfig
from roquet.ha.config import HaConfig
from roquet.model.topic import READ_WRITE
from roquet.protocol import names
from roquet.remoting.connections.limits import OutgoingConfig, WriteBufferConfig
from roquet.remoting.tls import TlsConfig, with_tls_file
from roquet.service.exporting.config import DISABLE, LOG, OTLP, PROM, ExporterConfig
from roquet.service.http.address_server import AddressLookup, AddressServerConfig
from roquet.store.plugins import PluginConfig
from roquet.store.settings import StoreConfig
from roquet.store.tables.groups import GroupTableConfig
from roquet.store.tables.topics import TopicTableConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")


def _ip_fault(text: str | None) -> str | None:
    try:
        ipaddress.ip_address(text or "127.0.0.1")
    except ValueError:
        return "must be an IP address"
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IdentityConfig:
    """Who the broker is."""

    cluster: str = setting("brokerClusterName", "DefaultCluster", "Cluster of this broker.")
    name: str = setting("brokerName", "", "Name of this broker; the host's when not given.")
    broker_id: int = setting(
        "brokerId", 0, "0 is the master, slaves have others.", low=0, high=2**31 - 1
    )
    role: str = setting("brokerRole", "ASYNC_MASTER", "Master or slave.", choices=ROLES)
    in_sync_replicas: int | None = setting(
        "inSyncReplicas",
        None,
        "Copies that a SYNC_MASTER asks for, its own among them; 2 when not given.",
        low=1,
        high=100,
        live=True,
    )
    ip1: str | None = setting("brokerIP1", None, "Address told to clients.", check=_ip_fault)
    ip2: str | None = setting("brokerIP2", None, "Address told to slaves.", check=_ip_fault)
    permission: int = setting(
        "brokerPermission",
        READ_WRITE,
        "What the broker allows: 2 write, 4 read.",
        low=0,
        high=7,
        live=True,
    )
    accept_sends_from_ms: int = setting(
        "startAcceptSendRequestTimeStamp",
        0,
        "No send is taken before.",
        unit="ms",
        low=0,
        live=True,
    )

    @property
    def is_slave(self) -> bool:
        """Whether the broker only copies a master."""
        return self.role == "SLAVE"

    @property
    def slaves_wanted(self) -> int:
        """Slaves that must have a message before it is acknowledged."""
        if self.role != "SYNC_MASTER":
            return 0
        return (self.in_sync_replicas or 2) - 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """Where the broker listens, and how much it lets wait."""

    bind_address: str | None = setting(
        "bindAddress", None, "Address to listen on; 0.0.0.0 for all."
    )
    port: int = setting("listenPort", 10911, "Main port; 0 for any.", low=0, high=65535)
    ha_port: int = setting("haListenPort", 0, "Port for slaves.", low=0, high=65535)
    idle_s: int = setting(
        "serverChannelMaxIdleTimeSeconds", 120, "Silent connections go.", unit="s", low=1
    )
    accepts_max: int = setting(
        "acceptsPerSecondMax",
        1_000,
        "Connections that one address may make in a second, 10,000 at once; 0 for no limit.",
        low=0,
    )
    send_queue: int = setting(
        "sendThreadPoolQueueCapacity", 10_000, "Waiting sends.", low=1, live=True
    )
    pull_queue: int = setting(
        "pullThreadPoolQueueCapacity", 100_000, "Waiting pulls.", low=1, live=True
    )
    query_queue: int = setting(
        "queryThreadPoolQueueCapacity", 20_000, "Waiting queries.", low=1, live=True
    )
    heartbeat_queue: int = setting(
        "heartbeatThreadPoolQueueCapacity", 50_000, "Waiting heartbeats.", low=1, live=True
    )
    lite_pull_queue: int = setting(
        "litePullThreadPoolQueueCapacity", 100_000, "Waiting lite pulls.", low=1, live=True
    )
    client_queue: int = setting(
        "clientManagerThreadPoolQueueCapacity",
        1_000_000,
        "Waiting leavers and checks of clients.",
        low=1,
        live=True,
    )
    consumer_queue: int = setting(
        "consumerManagerThreadPoolQueueCapacity",
        1_000_000,
        "Waiting requests about offsets and members.",
        low=1,
        live=True,
    )
    reply_queue: int = setting(
        "replyThreadPoolQueueCapacity", 10_000, "Waiting replies.", low=1, live=True
    )
    end_transaction_queue: int = setting(
        "endTransactionPoolQueueCapacity",
        100_000,
        "Waiting ends of transactions.",
        low=1,
        live=True,
    )
    load_balance_queue: int = setting(
        "loadBalanceThreadPoolQueueCapacity",
        100_000,
        "Waiting questions for assignments of queues.",
        low=1,
        live=True,
    )
    ack_queue: int = setting(
        "ackThreadPoolQueueCapacity",
        100_000,
        "Waiting acknowledgements of popped messages.",
        low=1,
        live=True,
    )
    admin_queue: int = setting(
        "adminBrokerThreadPoolQueueCapacity", 10_000, "Waiting admin requests.", low=1, live=True
    )
    send_age_ms: int = setting(
        "waitTimeMillsInSendQueue", 200, "Longest wait of a send.", unit="ms", low=1, live=True
    )
    pull_age_ms: int = setting(
        "waitTimeMillsInPullQueue", 5000, "Longest wait of a pull.", unit="ms", low=1, live=True
    )
    lite_pull_age_ms: int = setting(
        "waitTimeMillsInLitePullQueue",
        5000,
        "Longest wait of a lite pull.",
        unit="ms",
        low=1,
        live=True,
    )
    heartbeat_age_ms: int = setting(
        "waitTimeMillsInHeartbeatQueue",
        31_000,
        "Longest wait of a heartbeat.",
        unit="ms",
        low=1,
        live=True,
    )
    end_transaction_age_ms: int = setting(
        "waitTimeMillsInTransactionQueue",
        3000,
        "Longest wait of an end of a transaction.",
        unit="ms",
        low=1,
        live=True,
    )
    admin_age_ms: int = setting(
        "waitTimeMillsInAdminBrokerQueue",
        5000,
        "Longest wait of others.",
        unit="ms",
        low=1,
        live=True,
    )
    holds_max: int = setting("heldPullsMax", 100_000, "Pulls that may wait for messages.", low=0)
    offsets_interval_ms: int = setting(
        "flushConsumerOffsetInterval", 5000, "Between saves of offsets.", unit="ms", low=10
    )
    fast_path: bool = setting(
        "fastPathEnable", True, "Whether plain sends and pulls are answered by compiled code."
    )
    io_threads: int = setting(
        "ioThreads",
        1,
        "Threads of compiled code that serve the connections and answer plain sends and pulls"
        " beside Python; 0: Python's loop serves them, as it does where there is no epoll.",
        low=0,
        high=64,
    )
    sync_in_place_us: int = setting(
        "syncFlushInPlaceMicros",
        1000,
        "With SYNC_FLUSH, while syncs take less than this, those for a sender who is alone are done"
        " at once instead of by another thread; 0: never.",
        unit="us",
        low=0,
        high=100_000,
    )
    metrics: str = setting(
        "metricsExporterType",
        "DISABLE",
        "PROM serves /metrics, /livez and /readyz over HTTP, OTLP_GRPC pushes the metrics to a"
        " collector, LOG writes them to the log.",
        choices=(DISABLE, PROM, OTLP, LOG),
    )
    metrics_port: int = setting(
        "metricsPromExporterPort", 5557, "Port of that HTTP server.", low=0, high=65535
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientsConfig:
    """How clients are looked after."""

    expire_ms: int = setting(
        "channelExpiredTimeout", 120_000, "Silent clients are forgotten.", unit="ms", low=1000
    )
    notify: bool = setting(
        "notifyConsumerIdsChangedEnable", True, "Whether members are told of changes.", live=True
    )
    notify_at_once: bool = setting(
        "realTimeNotifyConsumerChange", True, "Whether that happens at once.", live=True
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All settings of a broker."""

    identity: IdentityConfig = dataclasses.field(default_factory=IdentityConfig)
    server: ListenConfig = dataclasses.field(default_factory=ListenConfig)
    outgoing: OutgoingConfig = dataclasses.field(default_factory=OutgoingConfig)
    write_buffer: WriteBufferConfig = dataclasses.field(default_factory=WriteBufferConfig)
    exporter: ExporterConfig = dataclasses.field(default_factory=ExporterConfig)
    families: FamiliesConfig = dataclasses.field(default_factory=FamiliesConfig)
    """How metrics leave the process."""
    registration: RegistrationConfig = dataclasses.field(default_factory=RegistrationConfig)
    topics: TopicTableConfig = dataclasses.field(default_factory=TopicTableConfig)
    groups: GroupTableConfig = dataclasses.field(default_factory=GroupTableConfig)
    store: StoreConfig = dataclasses.field(default_factory=StoreConfig)
    plugins: PluginConfig = dataclasses.field(default_factory=PluginConfig)
    send: SendConfig = dataclasses.field(default_factory=SendConfig)
    locks: LockConfig = dataclasses.field(default_factory=LockConfig)
    transactions: TransactionConfig = dataclasses.field(default_factory=TransactionConfig)
    query: QueryLimits = dataclasses.field(default_factory=QueryLimits)
    offsets: OffsetConfig = dataclasses.field(default_factory=OffsetConfig)
    schedule: ScheduleConfig = dataclasses.field(default_factory=ScheduleConfig)
    timers: TimerConfig = dataclasses.field(default_factory=TimerConfig)
    assignments: AssignmentConfig = dataclasses.field(default_factory=AssignmentConfig)
    revive: ReviveConfig = dataclasses.field(default_factory=ReviveConfig)
    pull: PullConfig = dataclasses.field(default_factory=PullConfig)
    pop_buffer: BufferConfig = dataclasses.field(default_factory=BufferConfig)
    """Checkpoints of POP that wait in memory."""
    pop: PopConfig = dataclasses.field(default_factory=PopConfig)
    light_topics: LightTopicConfig = dataclasses.field(default_factory=LightTopicConfig)
    clients: ClientsConfig = dataclasses.field(default_factory=ClientsConfig)
    fast_fail: FastFailConfig = dataclasses.field(default_factory=FastFailConfig)
    ha: HaConfig = dataclasses.field(default_factory=HaConfig)
    tls: TlsConfig = dataclasses.field(default_factory=TlsConfig)
    acl: AclConfig = dataclasses.field(default_factory=AclConfig)
    auth: AuthConfig = dataclasses.field(default_factory=AuthConfig)
    address_server: AddressServerConfig = dataclasses.field(default_factory=AddressServerConfig)
    slow_groups: SlowGroupConfig = dataclasses.field(default_factory=SlowGroupConfig)
    file: Path | None = None
    """The property file that was read: settings changed while running are written down there."""
    credentials: Credentials | None = None
    """What requests to name servers and other brokers are signed with."""


def load_config(
    file: Path | None,
    env: Mapping[str, str],
    flags: Mapping[str, str | int | bool | None],
) -> tuple[BrokerConfig, Report]:
    """Read a property file (if any), environment and flags, and settle what is left open.

    Raises UsageError, one line that names key, value and rule. Without a file the broker listens
    on loopback; with one that names no address, on all, as a Java broker would.
    """
    given: dict[str, str] = {}
    if file is not None:
        try:
            given = read_property_file(file, BrokerConfig)
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from error
    if given.get("enableDLegerCommitLog", "").strip().lower() == "true":
        raise UsageError(
            "enableDLegerCommitLog = 'true' (file): must be false; a log replicated by DLedger is"
            " not served, brokers under a controller replace it"
        )
    if given.get("popConsumerKVServiceEnable", "").strip().lower() == "true":
        raise UsageError(
            "popConsumerKVServiceEnable = 'true' (file): must be false; the records of POP are kept"
            " in the revive topic, RocksDB is not served"
        )
    if "NAMESRV_ADDR" in env:
        given.setdefault("namesrvAddr", env["NAMESRV_ADDR"])
    if "ROCKETMQ_HOME" in env:
        given.setdefault("rocketmqHome", env["ROCKETMQ_HOME"])
    given = with_tls_file(given, env, flags)
    config, report = load(BrokerConfig, given, env, flags, other_env=variables(env))
    check_auth(config.auth, config.acl)
    own = inner_credentials(config.auth) or from_environment(env)
    config = dataclasses.replace(config, file=file, credentials=own)
    if config.acl.enabled or config.auth.migrate:
        accounts_path(config.acl, file)
    return settled(config, from_file=file is not None), report


def settled(config: BrokerConfig, *, from_file: bool) -> BrokerConfig:
    """Fill in what depends on the machine, and check what no single setting can."""
    identity = config.identity
    name = identity.name or platform.node().split(".")[0] or "DEFAULT_BROKER"
    for what, text in (("brokerName", name), ("brokerClusterName", identity.cluster)):
        if names.check_topic(text) is not None:
            raise UsageError(f"{what} = {text[:80]!r}: must be letters, digits, `_` and `-`")
    if identity.is_slave and identity.broker_id == 0:
        raise UsageError("brokerRole = 'SLAVE': Slave's brokerId must be > 0")
    if identity.broker_id != 0 and not identity.is_slave:
        raise UsageError(f"brokerId = '{identity.broker_id}': must be 0 for a master")
    if config.address_server.enabled and not config.registration.name_servers:
        AddressLookup.check(config.address_server.url)
    config.exporter.check(config.server.metrics)
    config.write_buffer.check()
    bind = config.server.bind_address or ("0.0.0.0" if from_file else "127.0.0.1")  # noqa: S104
    ip = identity.ip1 or (own_ip() if bind in {"0.0.0.0", "::"} else bind)  # noqa: S104
    if _ip_fault(ip) is not None:
        raise UsageError(f"brokerIP1 has to be set: bindAddress {bind!r} is no IP address")
    return dataclasses.replace(
        config,
        identity=dataclasses.replace(identity, name=name, ip1=ip, ip2=identity.ip2 or ip),
        server=dataclasses.replace(config.server, bind_address=bind),
        topics=dataclasses.replace(config.topics, broker_name=name),
        store=_with_memory_percent(config.store, is_slave=identity.is_slave),
    )


def _with_memory_percent(store: StoreConfig, *, is_slave: bool) -> StoreConfig:
    """Fill in how much of memory recent messages have; a slave leaves some to its master's."""
    if store.memory_percent is not None:
        return store
    return dataclasses.replace(store, memory_percent=30 if is_slave else 40)


def own_ip() -> str:
    """Return the address this machine would be reached at; nothing is sent for it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
