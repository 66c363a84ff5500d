"""Settings of a pair: what they may be, and what masters and slaves make of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet._native import PairTls
from roquet.base.errors import UsageError
from roquet.ha.config import HaConfig
from roquet.remoting.tls import FILE_SIZE_MAX
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import broker_config
from roquet.testing.pair import certificate


@pytest.mark.parametrize(
    ("address", "master"),
    [
        # Shorter ones mean none, as in Java.
        ("", None),
        ("a:123", None),
        ("none!", None),
        ("ab:123", "ab:123"),
        ("10.0.0.1:10912", "10.0.0.1:10912"),
    ],
)
def test_configured_master_is_an_address_of_six_letters_or_more(
    tmp_path: Path, address: str, master: str | None
) -> None:
    broker_config(tmp_path, haMasterAddress=address)
    assert HaConfig(master_address=address).configured_master == master


@pytest.mark.parametrize("address", ["nowhere", "nowher", "a.b.c.d", "host:port"])
def test_master_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(UsageError, match="must be host:port"):
        broker_config(tmp_path, haMasterAddress=address)


@pytest.mark.parametrize(("secret", "taken"), [("", True), ("x" * 15, False), ("x" * 16, True)])
def test_secret_has_sixteen_bytes_or_is_none(tmp_path: Path, secret: str, *, taken: bool) -> None:
    if taken:
        broker_config(tmp_path, haSharedSecret=secret)
    else:
        with pytest.raises(UsageError, match="must have 16 bytes or more"):
            broker_config(tmp_path, haSharedSecret=secret)
    # Bytes count, not letters.
    broker_config(tmp_path / "bytes", haSharedSecret="\u00e9" * 8)


def test_rules_of_feeding_and_copying_are_those_of_the_settings() -> None:
    rules = HaConfig(batch=7, heartbeat_ms=11, housekeeping_ms=13, rate_max=17)
    feed = rules.feed(19)
    assert (feed.batch, feed.heartbeat_ms, feed.housekeeping_ms, feed.file_bytes) == (7, 11, 13, 19)
    assert feed.bytes_per_second == 0
    limited = HaConfig(rate_max=17, flow_control=True)
    assert limited.feed(19).bytes_per_second == 17
    copier = rules.copier()
    assert (copier.heartbeat_ms, copier.housekeeping_ms) == (11, 13)


def test_tls_of_a_pair_needs_a_certificate_on_masters_and_trust_on_slaves(tmp_path: Path) -> None:
    clock = FakeClock()
    plain = HaConfig()
    assert (plain.server_tls(clock), plain.client_tls(clock)) == (None, None)
    cert, key = certificate(tmp_path)
    # Its own authority.
    shows = HaConfig(tls=True, tls_cert=cert, tls_key=key)
    trusts = HaConfig(tls=True, tls_trust=cert)
    with pytest.raises(UsageError, match="haTlsCertFile has to be set"):
        trusts.server_tls(clock)
    with pytest.raises(UsageError, match="haTlsTrustFile has to be set on a slave"):
        shows.client_tls(clock)
    for side in (shows.server_tls(clock), trusts.client_tls(clock)):
        assert side is not None
        assert isinstance(side.load(), PairTls)


def test_tls_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    # Text behind a certificate is allowed.
    for more, fits in ((0, True), (1, False)):
        size = FILE_SIZE_MAX + more
        long = tmp_path / "long.pem"
        long.write_text(Path(cert).read_text().ljust(size, "\n"))
        rules = HaConfig(tls=True, tls_cert=str(long), tls_key=key)
        if fits:
            assert rules.server_tls(FakeClock()) is not None
            continue
        with pytest.raises(UsageError, match=f"long.pem has more than {FILE_SIZE_MAX} bytes"):
            rules.server_tls(FakeClock())
