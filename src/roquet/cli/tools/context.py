"""`roquet context …`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import NotFound, UsageError
from roquet.cli import contexts, output
from roquet.cli.commands.asking import ask
from roquet.remoting.tls import client_tls

if TYPE_CHECKING:
    import argparse


def ls(options: argparse.Namespace) -> int:
    """List contexts; secrets are not shown."""
    known = contexts.load()
    rows = [
        (name, it.namesrv, it.access_key, it.tls, name == known.in_use)
        for name, it in sorted(known.clusters.items())
    ]
    output.listed(("context", "name servers", "account", "tls", "in use"), rows, options.output)
    return 0


def use(options: argparse.Namespace) -> int:
    """Talk to this cluster from now on."""
    known = contexts.load()
    _demand(known, options.name)
    known.in_use = options.name
    contexts.save(known)
    output.line(f"in use: {options.name} ({known.clusters[options.name].namesrv})")
    if os.environ.get("NAMESRV_ADDR"):
        output.error("$NAMESRV_ADDR is set and goes before the context in use")
    return 0


def add(options: argparse.Namespace) -> int:
    """Add a cluster, or change one."""
    name = contexts.check_name(options.name)
    contexts.addresses_of(options.address, "the address")
    if (options.access_key is None) != (options.secret_file is None):
        raise UsageError("an account needs both --access-key and --secret-file")
    secret = None if options.secret_file is None else contexts.secret_of(options.secret_file)
    known = contexts.load()
    files = {name: getattr(options, name) for name in ("ca", "cert", "key")}
    if any(files.values()) and not options.tls:
        raise UsageError("--ca, --cert and --key are for --tls")
    # Commands are typed in any folder.
    files = {name: it and str(Path(it).expanduser().absolute()) for name, it in files.items()}
    added = contexts.Context(options.address, options.access_key, secret, tls=options.tls, **files)
    added.credentials()
    if (tls := client_tls(added.secured(), SystemClock())) is not None:
        tls.context()  # reads the files
    known.clusters[name] = added
    known.in_use = known.in_use or name
    contexts.save(known)
    output.line(f"{name}: {options.address}{', in use' if known.in_use == name else ''}")
    return 0


def rm(options: argparse.Namespace) -> int:
    """Forget a cluster."""
    known = contexts.load()
    _demand(known, options.name)
    ask(f"{options.name} and its account will be forgotten", options)
    del known.clusters[options.name]
    if known.in_use == options.name:
        known.in_use = None
    contexts.save(known)
    output.line(f"{options.name}: forgotten")
    return 0


def _demand(known: contexts.Contexts, name: str) -> None:
    if name not in known.clusters:
        raise NotFound(f"there is no context {name[:64]!r}; try: roquet context ls")
