"""Settings of a pair; those of Java's MessageStoreConfig keep their names."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet._native import PairTls
from roquet.base.config import how_to_set, setting
from roquet.base.errors import UsageError
from roquet.ha.feed import CopierConfig, FeedConfig
from roquet.protocol.hosts import networks_fault, split_addresses
from roquet.remoting.tls import Certificates, pem_of

if TYPE_CHECKING:
    from roquet.base.clock import Clock

ADDRESS_MIN = 6
"""A shorter haMasterAddress means none, as in Java."""


def _address_fault(text: str | None) -> str | None:
    try:
        split_addresses(text if text and len(text) >= ADDRESS_MIN else "")
    except ValueError as error:
        return f"must be host:port ({error})"
    return None


def _secret_fault(text: str | None) -> str | None:
    if text and len(text.encode()) < 16:
        return "must have 16 bytes or more"
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HaConfig:
    """How master and slave meet."""

    master_address: str | None = setting(
        "haMasterAddress",
        None,
        "Where the slave copies from; learnt from the name servers when not given.",
        check=_address_fault,
    )
    batch: int = setting(
        "haTransferBatchSize",
        32 * 1024,
        "Longest piece of the log in one frame.",
        unit="bytes",
        low=1,
        high=16 * 1024 * 1024,
        live=True,
    )
    heartbeat_ms: int = setting(
        "haSendHeartbeatInterval",
        5_000,
        "Silence before a heartbeat.",
        unit="ms",
        low=10,
        live=True,
    )
    housekeeping_ms: int = setting(
        "haHousekeepingInterval",
        20_000,
        "Silence that ends a connection.",
        unit="ms",
        low=10,
        live=True,
    )
    reconnect_ms: int = setting(
        "haReconnectInterval", 5_000, "Pause before a slave connects again.", unit="ms", low=10
    )
    gap_max: int = setting(
        "haMaxGapNotInSync",
        256 * 1024 * 1024,
        "A slave that is further behind does not count as following.",
        unit="bytes",
        low=1,
        live=True,
    )
    slave_timeout_ms: int = setting(
        "slaveTimeout", 3_000, "Longest wait of a send for its copies.", unit="ms", low=1, live=True
    )
    flow_control: bool = setting(
        "haFlowControlEnable", False, "Whether a slave gets no more than a rate.", live=True
    )
    rate_max: int = setting(
        "maxHaTransferByteInSecond",
        100 * 1024 * 1024,
        "That rate, for each slave.",
        unit="bytes",
        low=1,
        live=True,
    )
    sync_interval_ms: int = setting(
        "slaveSyncInterval",
        10_000,
        "Between a slave's looks at its master's topics, groups and offsets.",
        unit="ms",
        low=10,
    )
    secret: str | None = setting(
        "haSharedSecret",
        None,
        "What master and slave must both know; no Java broker does.",
        secret=True,
        check=_secret_fault,
    )
    slave_addresses: str = setting(
        "haSlaveAddresses",
        "",
        "Addresses and networks of slaves, with commas; no other host may connect. Empty: all may.",
        check=networks_fault,
    )
    open_with_accounts: bool = setting(
        "haOpenWithAccessControl",
        False,
        "Whether every host may copy the log although requests need an account.",
    )
    tls: bool = setting("haTlsEnable", False, "Whether the log is copied over TLS.")
    tls_cert: str | None = setting("haTlsCertFile", None, "Certificate chain shown, PEM.")
    tls_key: str | None = setting("haTlsKeyFile", None, "Its private key, PEM.")
    tls_trust: str | None = setting(
        "haTlsTrustFile", None, "Authorities that must have signed the other side's, PEM."
    )

    @property
    def configured_master(self) -> str | None:
        """The address to copy from when it is not to be learnt."""
        address = self.master_address
        return address if address and len(address) >= ADDRESS_MIN else None

    @property
    def knows_slaves(self) -> bool:
        """Whether a master can tell its slaves from strangers."""
        shows_certificate = self.tls and bool(self.tls_trust)
        return bool(self.secret or self.slave_addresses.strip(" ,")) or shows_certificate

    def feed(self, file_bytes: int) -> FeedConfig:
        """Return how a master feeds its slaves."""
        return FeedConfig(
            batch=self.batch,
            heartbeat_ms=self.heartbeat_ms,
            housekeeping_ms=self.housekeeping_ms,
            file_bytes=file_bytes,
            bytes_per_second=self.rate_max if self.flow_control else 0,
        )

    def copier(self) -> CopierConfig:
        """Return how a slave follows its master."""
        return CopierConfig(self.heartbeat_ms, self.housekeeping_ms)

    def server_tls(self, clock: Clock) -> Certificates[PairTls] | None:
        """Return how the master speaks TLS, None when it does not. Raises UsageError."""
        if not self.tls:
            return None
        if not self.tls_cert:
            raise UsageError(
                f"haTlsEnable = 'true': haTlsCertFile has to be set ({how_to_set('haTlsCertFile')})"
            )
        return self._certificates(clock, is_master=True)

    def client_tls(self, clock: Clock) -> Certificates[PairTls] | None:
        """Return how a slave speaks TLS, None when it does not. Raises UsageError."""
        if not self.tls:
            return None
        if not self.tls_trust:
            raise UsageError(
                "haTlsEnable = 'true': haTlsTrustFile has to be set on a slave"
                f" ({how_to_set('haTlsTrustFile')})"
            )
        return self._certificates(clock, is_master=False)

    def _certificates(self, clock: Clock, *, is_master: bool) -> Certificates[PairTls]:
        names = (self.tls_cert or "", self.tls_key or "", self.tls_trust or "")

        def make() -> PairTls:
            try:
                cert, key, trust = map(pem_of, names)
                return PairTls(is_master=is_master, cert=cert, key=key, trust=trust)
            except (OSError, ValueError) as error:
                raise UsageError(f"the TLS files of the pair cannot be used: {error}") from error

        certificates = Certificates("the TLS of the pair", names, make, clock)
        certificates.load()
        return certificates
