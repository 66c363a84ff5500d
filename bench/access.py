"""A broker that asks who its clients are, and speaks TLS: what either make is told."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
from typing import TYPE_CHECKING

from roquet.acl.signature import sign

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.protocol.command import Command

_PACKAGE = "org.apache.rocketmq.auth"
_SWITCHES = {"authentication": "Authentication", "authorization": "Authorization"}


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """One account that may do everything, on a port that takes TLS beside plain connections."""

    access_key: str
    secret_key: str
    is_user: bool = False
    """Whether ours has it as a super user of 5.x, as RocketMQ's has, not in `plain_acl.yml`."""

    def signed(self) -> Callable[[Command], Command]:
        """Return what signs requests."""
        secret = self.secret_key.encode()
        return functools.partial(sign, access_key=self.access_key, secret=secret)

    def load_options(self) -> list[str]:
        """Return the load generator's options: signed, and over TLS."""
        options = {"access-key": self.access_key, "secret-key": self.secret_key, "tls": "1"}
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    def config(self, kind: str, folder: Path) -> list[str]:
        """Write what a broker needs into its folder; return lines of its property file."""
        if kind == "java":
            # It makes a certificate by itself.
            return self._users()
        own = self._users() if self.is_user else self._accounts(folder)
        return own + certificate(folder)

    def _users(self) -> list[str]:
        # 5.5 has users in place of plain_acl.yml.
        user = json.dumps({"username": self.access_key, "password": self.secret_key})
        inner = json.dumps({"accessKey": self.access_key, "secretKey": self.secret_key})
        lines = [f"initAuthenticationUser={user}", f"innerClientAuthenticationCredentials={inner}"]
        for name, title in _SWITCHES.items():
            providers = f"{_PACKAGE}.{name}.provider"
            lines += [
                f"{name}Enabled=true",
                f"{name}Provider={providers}.Default{title}Provider",
                f"{name}MetadataProvider={providers}.Local{title}MetadataProvider",
            ]
        return lines

    def _accounts(self, folder: Path) -> list[str]:
        accounts = folder / "conf" / "plain_acl.yml"
        accounts.parent.mkdir(exist_ok=True)
        accounts.touch(0o600)
        accounts.write_text(
            "accounts:\n"
            f"- {{accessKey: {self.access_key}, secretKey: {self.secret_key}, admin: true}}\n"
        )
        return ["aclEnable=true"]


def certificate(folder: Path) -> list[str]:
    """Make a certificate in a folder; return the lines of our property file that name it."""
    pair = {"key": folder / "broker.key", "cert": folder / "broker.pem"}
    made = ["-keyout", str(pair["key"]), "-out", str(pair["cert"])]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *made, "-subj", "/CN=bench"], check=True, stderr=subprocess.DEVNULL)
    return [f"tls.server.certPath={pair['cert']}", f"tls.server.keyPath={pair['key']}"]
