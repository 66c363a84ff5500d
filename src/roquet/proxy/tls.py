"""TLS of the port of gRPC: the rules of any port, a certificate that the core shows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet._native import GrpcTls
from roquet.base.errors import UsageError
from roquet.base.overriding import override
from roquet.remoting.tls import PortTls, pem_of, versions_of

if TYPE_CHECKING:
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.remoting.tls import TlsConfig


class GrpcPortTls(PortTls[GrpcTls]):
    """What the port of gRPC does with TLS."""

    @override
    def _make(self) -> GrpcTls:
        rules = self._rules
        asks = rules.client_auth != "none"
        try:
            cert = pem_of(rules.server_cert)
            assert cert is not None, "without a certificate nothing is made"
            return GrpcTls(
                cert=cert,
                key=pem_of(rules.server_key),
                password=rules.server_password,
                trust=pem_of(rules.server_trust) if asks else None,
                demands=rules.client_auth == "require",
                versions=versions_of(rules.protocols),
            )
        except (OSError, ValueError) as error:
            raise UsageError(f"the TLS files of gRPC cannot be used: {error}") from error


def config_of(rules: ProxyLimits, of_process: TlsConfig) -> TlsConfig:
    """Return the TLS of the port: the process's, with a certificate of its own if it has one."""
    if not rules.tls_cert:
        return of_process
    return dataclasses.replace(
        of_process,
        server_cert=rules.tls_cert,
        server_key=rules.tls_key,
        server_password=rules.tls_password,
    )
