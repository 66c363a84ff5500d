"""`python -m tools.attack [--slow-path]`: a broker process of its own is attacked for a minute.

Prints what the attackers achieved, and exits with 1 when that is anything at all.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from roquet.broker import app as broker_app
from roquet.broker.config import load_config
from roquet.testing.cluster import TINY
from tools.attack import campaign

SECRETS = {
    "haSharedSecret": "canary-of-the-pair",
    "initAuthenticationUser": '{"username":"first","password":"canary-of-the-first-user"}',
    "innerClientAuthenticationCredentials": (
        '{"accessKey":"inner","secretKey":"canary-of-the-inner-user"}'
    ),
    "metricsGrpcExporterHeader": "authorization:canary-of-the-collector",
    "tls.client.keyPassword": "canary-of-the-client-key",
    "tls.server.keyPassword": "canary-of-the-server-key",
}
"""Every setting that is a secret, with a value to look for."""


def settings(folder: Path, **changes: str) -> dict[str, str]:
    """Return the settings of a broker under attack, its accounts written below `folder`."""
    accounts = folder / "conf" / "plain_acl.yml"
    accounts.parent.mkdir(parents=True, exist_ok=True)
    accounts.touch(0o600)
    accounts.write_text(campaign.ACCOUNTS)
    return {
        **TINY,
        **SECRETS,
        "aclEnable": "true",
        "rocketmqHome": str(folder),
        "brokerName": "broker-a",
        "storePathRootDir": str(folder / "store"),
        "storePathCommitLog": str(folder / "store" / "commitlog"),
        # Nobody is asked about the half message meanwhile.
        "transactionTimeOut": "600000",
        "transactionCheckInterval": "600000",
        **changes,
    }


async def run(given: dict[str, str]) -> list[str]:
    """Attack a broker with these settings; return what was achieved."""
    config, _ = load_config(None, {}, dict(given))
    broker = broker_app.build(config)
    secrets = [value.encode() for value in SECRETS.values()]
    async with broker.app:
        return await asyncio.to_thread(campaign.attack, broker.identity.address, secrets=secrets)


def main() -> int:
    """Attack, print, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.attack")
    parser.add_argument("--slow-path", action="store_true", help="without the native fast path")
    slow = parser.parse_args().slow_path
    with tempfile.TemporaryDirectory() as folder:
        changes = {"fastPathEnable": "false"} if slow else {}
        findings = asyncio.run(run(settings(Path(folder), **changes)))
    for finding in findings:
        sys.stdout.write(finding + "\n")
    sys.stdout.write(f"{len(findings)} findings\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
