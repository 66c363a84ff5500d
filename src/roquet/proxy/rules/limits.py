"""Settings of the front; names and defaults are Java's (rmq-proxy.json) where it has them."""

from __future__ import annotations

import dataclasses

from roquet.base.config import setting, settings
from roquet.base.errors import UsageError
from roquet.protocol.hosts import networks_fault

MIB = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits:
    """What is allowed, and until when. Times are milliseconds, sizes bytes."""

    port: int = setting("grpcServerPort", 8081, "Port of gRPC; 0 for any.", low=0, high=65535)
    use_request_port: bool = setting(
        "useEndpointPortFromRequest",
        False,
        "Whether routes name the port that the client has used instead of ours.",
    )
    tls_cert: str = setting(
        "tlsCertPath", "", "Certificate chain of this port, PEM; without it the broker's."
    )
    tls_key: str = setting("tlsKeyPath", "", "Its private key, PEM.")
    tls_password: str = setting("tlsKeyPassword", "", "Opens that key.", secret=True)
    tls_watch_ms: int = setting(
        "tlsCertWatchIntervalMs", 500, "Between looks at the certificate.", unit="ms", low=100
    )
    balancers: str = setting(
        "proxyProtocolPeers",
        "",
        "Addresses and networks of balancers that speak the PROXY protocol of HAProxy.",
        check=networks_fault,
    )
    inbound_max: int = setting(
        "grpcMaxInboundMessageSize", 130 * MIB, "Longest request.", low=1024, high=1 << 31
    )
    inbound_total: int = setting(
        "grpcInboundBytesMax", 512 * MIB, "All requests that are not answered.", low=1024
    )
    inbound_of_connection: int = setting(
        "grpcInboundBytesOfConnectionMax",
        128 * MIB,
        "Those of one connection; a request that is alone there may be longer.",
        low=1024,
    )
    inbound_of_account: int = setting(
        "grpcInboundBytesOfAccountMax",
        256 * MIB,
        "Those of one account over all its connections, where accounts are kept; a request that is"
        " alone may be longer.",
        low=1024,
    )
    outbound_max: int = setting(
        "grpcOutboundBytesMax",
        8 * MIB,
        "Answers that a connection has not read; one with more is closed.",
        low=64 * 1024,
    )
    header_max: int = setting(
        "grpcMaxHeaderListSize", 8192, "Metadata of a call.", low=1024, high=1 << 20
    )
    connections_max: int = setting("grpcConnectionsMax", 10_000, "Connections.", low=1)
    address_connections_max: int = setting(
        "grpcConnectionsOfAddressMax",
        8_000,
        "Those of one address; of a balancer that speaks the PROXY protocol, of each client.",
        low=1,
    )
    calls_max: int = setting(
        "grpcMaxConcurrentCallsPerConnection",
        4096,
        "Calls of a connection at a time; Java: no limit.",
        low=1,
        high=1 << 20,
    )
    resets_max: int = setting(
        "grpcResetsMax", 1000, "Calls that a client may reset in 10 s.", low=1, high=1 << 30
    )
    idle_ms: int = setting(
        "grpcClientIdleTimeMills",
        120_000,
        "A connection without calls is closed after it.",
        unit="ms",
        low=100,
    )
    patience_ms: int = setting(
        "grpcPatienceMills",
        30_000,
        "For a whole request, progress of an answer, the answer to a ping.",
        unit="ms",
        low=100,
    )
    in_flight_max: int = setting(
        "grpcThreadPoolQueueCapacity", 10_000, "Calls of a family at a time.", low=1
    )
    clients_max: int = setting("grpcClientsMax", 100_000, "Clients with settings.", low=1)
    account_clients_max: int = setting(
        "grpcClientsOfAccountMax", 20_000, "Those of one account, where accounts are kept.", low=1
    )
    message_max: int = setting("maxMessageSize", 4 * MIB, "Longest body; 0 for no limit.", low=0)
    properties_max: int = setting("userPropertyMaxNum", 128, "User properties.", low=0)
    property_bytes_max: int = setting(
        "maxUserPropertySize", 16 * 1024, "Keys and values, tag and keys.", low=0
    )
    group_bytes_max: int = setting("maxMessageGroupSize", 64, "A message group is shorter.", low=0)
    light_bytes_max: int = setting("maxLiteTopicSize", 64, "Name of a lite topic.", low=1)
    light_renewed_max: int = setting(
        "maxLiteRenewNumPerChannel", 100, "Unsettled messages of a lite consumer.", low=0
    )
    light_sync_rate: int = setting(
        "maxSyncLiteSubscriptionRate", 5000, "Additions to lite subscriptions in a second.", low=1
    )
    delay_max_ms: int = setting(
        "maxDelayTimeMills", 86_400_000, "Longest delay; 0 for no limit.", unit="ms", low=0
    )
    recovery_max_s: int = setting(
        "maxTransactionRecoverySecond", 3600, "Longest time until a check.", unit="s", low=0
    )
    check_type: bool = setting(
        "enableTopicMessageTypeCheck", True, "Whether topics take their own type alone."
    )
    invisible_min_ms: int = setting(
        "minInvisibleTimeMillsForRecv", 10_000, "Shortest of a receive.", unit="ms", low=0
    )
    invisible_max_ms: int = setting(
        "maxInvisibleTimeMills", 43_200_000, "Longest; 0 for no limit.", unit="ms", low=0
    )
    invisible_ms: int = setting(
        "defaultInvisibleTimeMills", 60_000, "With auto-renewal.", unit="ms", low=1000
    )
    polling_min_ms: int = setting(
        "grpcClientConsumerMinLongPollingTimeoutMillis", 5_000, "Shortest wait.", unit="ms", low=0
    )
    polling_max_ms: int = setting(
        "grpcClientConsumerMaxLongPollingTimeoutMillis", 20_000, "Longest wait.", unit="ms", low=0
    )
    batch_max: int = setting(
        "grpcClientConsumerLongPollingBatchSize", 32, "Messages of a receive.", low=1, high=32
    )
    pull: bool = setting(
        "enableGrpcPull",
        False,
        "Whether PullMessage, UpdateOffset, GetOffset and QueryOffset are served; ours alone.",
    )
    auto_renew: bool = setting(
        "enableProxyAutoRenew", True, "Whether messages of push consumers are kept invisible."
    )
    renew_ahead_ms: int = setting(
        "renewAheadTimeMillis", 10_000, "Renewed so long before they return.", unit="ms", low=1000
    )
    renew_for_ms: int = setting(
        "renewMaxTimeMillis", 10_800_000, "Not renewed for longer.", unit="ms", low=1000
    )
    renew_tries: int = setting("maxRenewRetryTimes", 3, "Failed renewals.", low=1)
    renew_every_ms: int = setting(
        "renewSchedulePeriodMillis", 5_000, "Between looks at them.", unit="ms", low=100
    )
    renewed_max: int = setting("renewedMessagesMax", 1_000_000, "Messages under renewal.", low=0)
    send_attempts: int = setting(
        "grpcClientProducerMaxAttempts", 3, "Attempts of producers.", low=1
    )
    send_backoff_ms: int = setting(
        "grpcClientProducerBackoffInitialMillis", 10, "Their first pause.", unit="ms", low=0
    )
    send_backoff_max_ms: int = setting(
        "grpcClientProducerBackoffMaxMillis", 1000, "Their longest.", unit="ms", low=0
    )
    send_backoff_times: int = setting(
        "grpcClientProducerBackoffMultiplier", 2, "Its growth.", low=1
    )


_PAIRS = (
    ("invisible_min_ms", "invisible_max_ms"),
    ("invisible_ms", "invisible_max_ms"),
    ("polling_min_ms", "polling_max_ms"),
    ("send_backoff_ms", "send_backoff_max_ms"),
    ("inbound_max", "inbound_total"),
)
"""Settings of which the first may not be more than the second."""
_UNLIMITED = frozenset({"invisible_max_ms"})
"""Those of which 0 is no limit."""


def check_limits(rules: ProxyLimits) -> None:
    """Raise UsageError where one setting leaves nothing of another."""
    names = {path[-1]: about.java for path, about, _ in settings(ProxyLimits)}
    for low, high in _PAIRS:
        least, most = getattr(rules, low), getattr(rules, high)
        if least > most and not (most == 0 and high in _UNLIMITED):
            raise UsageError(f"{names[low]} = {least} is more than {names[high]} = {most}")


TELEMETRY_MAX = MIB
"""Bytes of a message of a client's telemetry stream: settings name topics and groups."""
REQUEST_MAX = MIB
"""Bytes of any request that sends no messages."""
FIELDS_MAX = 20_000
"""Fields of such a request, those of messages within it included."""
SEND_FIELDS_MAX = 100_000
"""Fields of a request that sends messages."""
RENEW_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
"""By how much a message is renewed, by the number of renewals before."""
