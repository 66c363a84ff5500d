"""Java's proxy or ours before our broker, and the official clients of gRPC that come through it.

The clients are the programs of `tools/grpc_programs.py`.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import random
import selectors
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tools.grpc_programs import COMMANDS

from interop_world import has_route, issue_certificate, until
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.testing.java import (
    Process,
    free_port,
    java_command,
    roquet_process,
)
from timer_harness import TimerWorld

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roquet.acl.credentials import Credentials
    from timer_harness import TimerBroker

START_S = 60.0
Message = dict[str, Any]
SYNC_TOPIC = "DefaultHeartBeatSyncerTopic"
"""By which proxies tell one another who is connected to them."""


# --- a client --------------------------------------------------------------------------------


class Peer:
    """One client of gRPC in a process of its own; its requests are in `python_peer.py`."""

    def __init__(
        self,
        make: str,
        folder: Path,
        endpoint: str,
        authority: Path | None = None,
        who: Credentials | None = None,
    ) -> None:
        """Start it, and wait until it listens to requests; with an authority it speaks TLS.

        The Python client signs as `who`.
        """
        self.make = make
        folder.mkdir(parents=True)
        command = COMMANDS[make](folder, endpoint)
        self._errors = (folder / "peer.err").open("ab")
        self._child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "HOME": str(folder), **_tls(authority), **_keys(who)},
        )
        self._buffer = b""
        assert self._read(START_S) == {"ready": True}

    def ask(self, do: str, limit_s: float = 60.0, **fields: Any) -> Any:
        """Have the client do something; return what came of it."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        self._child.stdin.flush()
        answer = self._read(limit_s)
        assert "error" not in answer, answer["error"]
        return answer.get("result")

    def send(self, topic: str, messages: Sequence[Message]) -> list[Message]:
        """Send messages (body, tag, keys, group, due_ms, priority, properties)."""
        found: list[Message] = self.ask("send", topic=topic, messages=[_coded(m) for m in messages])
        return found

    def receive(self, group: str, most: int = 16, invisible_s: int = 10) -> list[Message]:
        """Receive once. A proxy that has not yet taken the settings has nothing to give."""
        assert self._child.stdin is not None
        fields = {"group": group, "most": most, "invisible_s": invisible_s}
        request = json.dumps({"do": "receive", **fields}).encode() + b"\n"
        self._child.stdin.write(request)
        self._child.stdin.flush()
        answer = self._read(60.0)
        if '"settings" is null' in answer.get("error", ""):
            time.sleep(0.1)
            return []
        assert "error" not in answer, answer["error"]
        return [_plain(message) for message in answer["result"]]

    def push(self, topic: str, group: str, count: int, **more: Any) -> list[Message]:
        """Consume by a push consumer until `count` came."""
        fields = {"timeout_s": 60, **more}
        for name in fields.keys() & {"fail_once", "fail_always"}:
            fields[name] = base64.b64encode(fields[name]).decode()
        found = self.ask("push", 240.0, topic=topic, group=group, count=count, **fields)
        return [_plain(message) for message in found]

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout, self._errors):
            assert stream is not None
            stream.close()

    def _read(self, timeout_s: float) -> dict[str, Any]:
        assert self._child.stdout is not None
        end = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                said = f"the client did not answer within {timeout_s} s: {self._errors.name}"
                assert selector.select(end - time.monotonic()), said
                chunk = os.read(self._child.stdout.fileno(), 1 << 20)
                assert chunk, f"the client ended: {Path(self._errors.name).read_text()[-2000:]}"
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


def _tls(authority: Path | None) -> dict[str, str]:
    """Return what has a client speak TLS; that of Java trusts anybody."""
    if authority is None:
        return {}
    return {"PEER_TLS": "yes", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority)}


def _keys(who: Credentials | None) -> dict[str, str]:
    if who is None:
        return {}
    return {"PEER_ACCESS_KEY": who.access_key, "PEER_SECRET_KEY": who.secret_key}


def _coded(message: Message) -> Message:
    return {**message, "body": base64.b64encode(message["body"]).decode()}


def _plain(message: Message) -> Message:
    assert not message["corrupted"]
    return {**message, "body": base64.b64decode(message["body"])}


# --- the servers -----------------------------------------------------------------------------


def _write_accounts(accounts: Accounts, broker: Path, proxy: Path) -> None:
    """Write the broker's file of accounts, and the proxy's with its own."""
    broker.mkdir(parents=True)
    table = broker / "plain_acl.yml"
    table.touch(0o600)
    table.write_text(accounts.text)
    mine = accounts.proxy
    text = f"accessKey: {mine.access_key}\nsecretKey: {mine.secret_key}\n"
    (proxy / "tools.yml").write_text(text)


@dataclasses.dataclass(frozen=True)
class Accounts:
    """Who may do what at the broker."""

    text: str
    """The file of accounts (plain_acl.yml)."""
    proxy: Credentials
    admin: Credentials


@dataclasses.dataclass
class ProxyWorld:
    """A name server of ours and a broker, and Java's proxy in cluster mode or ours before them."""

    broker: TimerBroker
    endpoint: str
    remoting: str
    """Empty before ours."""
    proxy: Process | None
    """None: gRPC is served by the broker's own process."""
    folder: Path
    _servers: TimerWorld
    _accounts: Accounts | None = None
    authority: Path | None = None
    """Who signed the certificate of gRPC; None: clients speak no TLS."""
    peers: dict[str, Peer] = dataclasses.field(default_factory=dict[str, Peer])

    @classmethod
    def start(
        cls,
        jars: Path,
        folder: Path,
        make: str = "ours",
        *,
        accounts: Accounts | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Start all of them; `make` is that of the broker, which has these settings as well."""
        servers = TimerWorld(jars, folder).__enter__()
        more = {"enablePropertyFilter": "true", **(settings or {})}
        if accounts is not None:
            more["aclEnable"] = "true"
        broker = servers.broker("behind-proxy", more)
        rng = random.Random()
        home = folder / "proxy"
        (home / "conf").mkdir(parents=True)
        if accounts is not None:
            _write_accounts(accounts, broker.folder / make / "conf", home / "conf")
        grpc, remoting = free_port(rng), free_port(rng)
        config = home / "rmq-proxy.json"
        proxy_settings = {
            "rocketMQClusterName": "DefaultCluster",
            "proxyMode": "CLUSTER",
            "proxyName": "proxy-a",
            "namesrvAddr": servers.namesrv,
            "grpcServerPort": grpc,
            "remotingListenPort": remoting,
            "remotingAccessAddr": "127.0.0.1",
            "localServeAddr": "127.0.0.1",
            "enableAclRpcHookForClusterMode": accounts is not None,
        }
        config.write_text(json.dumps(proxy_settings))
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        command = java_command(jars, home, main, "-pc", str(config), heap="512m")
        proxy = Process("proxy", command, home)
        world = cls(
            broker=broker,
            endpoint=f"127.0.0.1:{grpc}",
            remoting=f"127.0.0.1:{remoting}",
            proxy=proxy,
            folder=folder,
            _servers=servers,
            _accounts=accounts,
        )
        try:
            broker.open(make)
            if accounts is not None or settings is not None:
                # Only an administrator may make it, and on a busy machine the proxy gives up.
                world.topic(SYNC_TOPIC, "UNSPECIFIED")
                world.group(f"CID_{SYNC_TOPIC}")
            proxy.start("startup successfully")
        except BaseException:
            world.stop()
            raise
        return world

    @classmethod
    def start_ours(
        cls,
        jars: Path,
        folder: Path,
        *,
        accounts: Accounts | None = None,
        tls: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Start a name server and a broker that serves gRPC itself, over TLS if that is wanted."""
        servers = TimerWorld(jars, folder).__enter__()
        more = {"enablePropertyFilter": "true", "transactionCheckInterval": "2000"}
        more |= {"transactionTimeOut": "2000", **(settings or {})}
        if tls:
            more |= issue_certificate(folder / "tls")
        if accounts is not None:
            more["aclEnable"] = "true"
        broker = servers.broker("with-grpc", more)
        port = free_port(random.Random())
        broker.arguments = ("--proxy", "--grpc-port", str(port))
        if accounts is not None:
            conf = broker.folder / "ours" / "conf"
            conf.mkdir(parents=True)
            (conf / "plain_acl.yml").touch(0o600)
            (conf / "plain_acl.yml").write_text(accounts.text)
        world = cls(
            broker=broker,
            endpoint=f"127.0.0.1:{port}",
            remoting="",
            proxy=None,
            folder=folder,
            _servers=servers,
            _accounts=accounts,
            authority=folder / "tls" / "ca.pem" if tls else None,
        )
        try:
            broker.open("ours")
        except BaseException:
            world.stop()
            raise
        return world

    @classmethod
    def start_our_cluster(
        cls,
        jars: Path,
        folder: Path,
        make: str,
        *,
        accounts: Accounts | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Start a name server, a broker of a make, and our proxy in cluster mode before it.

        With accounts, which are those of users, the proxy checks its clients; the broker has
        `settings` for that.
        """
        servers = TimerWorld(jars, folder).__enter__()
        more = {**(settings or {})}
        more |= {"enablePropertyFilter": "true", "transactionCheckInterval": "2000"}
        # RocketMQ notes an end within 3 s; a check before that would commit the message again.
        more["transactionTimeOut"] = "2000" if make == "ours" else "8000"
        broker = servers.broker("behind-ours", more)
        port = free_port(random.Random())
        arguments = ["-n", servers.namesrv, "-pm", "cluster", "--grpc-port", str(port)]
        if accounts is not None:
            inner = {"accessKey": accounts.proxy.access_key, "secretKey": accounts.proxy.secret_key}
            both = {"authenticationEnabled": True, "authorizationEnabled": True}
            file = folder / "rmq-proxy.json"
            file.write_text(json.dumps({**both, "innerClientAuthenticationCredentials": inner}))
            arguments += ["-pc", str(file)]
        proxy = roquet_process("proxy", folder / "proxy", "proxy", *arguments)
        world = cls(
            broker=broker,
            endpoint=f"127.0.0.1:{port}",
            remoting="",
            proxy=proxy,
            folder=folder,
            _servers=servers,
            _accounts=accounts,
        )
        try:
            broker.open(make)
            proxy.start("The Proxy boot success")
        except BaseException:
            world.stop()
            raise
        return world

    def peer(self, make: str, who: Credentials | None = None) -> Peer:
        """Return the client of a make, and of an account if one is given; it is started once."""
        name = make if who is None else f"{make}-{who.access_key}-{len(who.secret_key)}"
        if name not in self.peers:
            folder = self.folder / f"peer-{name}"
            self.peers[name] = Peer(make, folder, self.endpoint, self.authority, who)
        return self.peers[name]

    def stop(self) -> None:
        """End everything."""
        for peer in self.peers.values():
            peer.close()
        if self.proxy is not None:
            self.proxy.kill()
        self._servers.__exit__(None, None, None)

    def ask(self, command: Command) -> Command:
        """Ask the broker itself, with the rights of an administrator."""
        sign = None if self._accounts is None else self._accounts.admin.sign
        with BlockingConnection(self.broker.plan.address, sign=sign) as connection:
            return connection.call(command, 20.0)

    def topic(self, name: str, kind: str, queues: int = 4) -> str:
        """Make a topic for messages of one kind."""
        fields = {
            "topic": name,
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": f"+message.type={kind}",
            "defaultTopic": "TBW102",
        }
        answer = self.ask(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
        assert answer.code == 0, answer.remark
        plan = self.broker.plan
        until("the route", partial(has_route, plan.namesrv, name, plan.name))
        return name

    def group(self, name: str, **more: Any) -> str:
        """Make a group."""
        body = json.dumps({"groupName": name, **more}).encode()
        command = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        answer = self.ask(command)
        assert answer.code == 0, answer.remark
        return name


@contextlib.contextmanager
def front_world(
    jars: Path, folder: Path, front: str, settings: Mapping[str, str] | None = None
) -> Iterator[ProxyWorld]:
    """Run a front of gRPC for a block.

    `java-proxy` is Java's, `local` is our broker's own, `ours` and `java` are our proxy before a
    broker of that make.
    """
    if front == "java-proxy":
        world = ProxyWorld.start(jars, folder, settings=settings)
    elif front == "local":
        world = ProxyWorld.start_ours(jars, folder, settings=settings)
    else:
        world = ProxyWorld.start_our_cluster(jars, folder, front, settings=settings)
    try:
        yield world
    finally:
        world.stop()
