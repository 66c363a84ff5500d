"""RocketMQ's controllers and the brokers that they govern, as its tool shows and changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import NotFound, UsageError
from roquet.cli import output
from roquet.cli.mqadmin.brokers import settings
from roquet.cli.mqadmin.shared import addresses_in, java_bool, number, repeated

if TYPE_CHECKING:
    import argparse

    from roquet.admin import Admin
    from roquet.protocol.bodies.rocketmq.controllers import Replica


async def get_metadata(admin: Admin, options: argparse.Namespace) -> int:
    """Print leader and peers of the controllers."""
    found = await admin.controllers.metadata(_named(options.controllerAddress)[0])
    output.line(f"\n#ControllerGroup\t{_text(found.group)}")
    output.line(f"#ControllerLeaderId\t{_text(found.leader_id)}")
    output.line(f"#ControllerLeaderAddress\t{_text(found.leader_address)}")
    for peer in (found.peers or "").split(";"):
        if peer:
            output.line(f"#Peer:\t{output.plain(peer)}")
    return 0


async def get_config(admin: Admin, options: argparse.Namespace) -> int:
    """Print the settings of each controller that is named."""
    for address in _named(options.controllerAddress):
        settings(address, await admin.controllers.config(address))
    return 0


async def update_config(admin: Admin, options: argparse.Namespace) -> int:
    """Change one setting of each controller that is named."""
    controllers = _named(options.controllerAddress)
    key, value = options.key.strip(), options.value.strip()
    await admin.controllers.set_config(controllers, {key: value})
    output.line(f"update controller config success![{', '.join(controllers)}]\n{key} : {value}")
    return 0


async def get_sync_state_set(admin: Admin, options: argparse.Namespace) -> int:
    """Print which replicas are in sync; with -i again and again."""
    return await repeated(options.interval, 3, lambda: _sync_state_set(admin, options))


async def _sync_state_set(admin: Admin, options: argparse.Namespace) -> int:
    controller = _named(options.controllerAddress)[0]
    names = await _broker_names(admin, options)
    for name, found in sorted((await admin.controllers.replicas(controller, names)).items()):
        output.line(f"\n#brokerName\t{output.plain(name)}")
        output.line(f"#MasterBrokerId\t{_text(found.master_id)}")
        output.line(f"#MasterAddr\t{_text(found.master_address)}")
        output.line(f"#MasterEpoch\t{_text(found.master_epoch)}")
        output.line(f"#SyncStateSetEpoch\t{_text(found.set_epoch)}")
        output.line(f"#SyncStateSetNums\t{len(found.in_sync)}")
        for it in found.in_sync:
            output.line(f"\nInSyncReplica:\t{_identity(it)}")
        for it in found.not_in_sync:
            output.line(f"\nNotInSyncReplica:\t{_identity(it)}")
    return 0


async def _broker_names(admin: Admin, options: argparse.Namespace) -> list[str]:
    if options.brokerName is not None:
        return [options.brokerName.strip()]
    if options.clusterName is None:
        raise UsageError("give -b or -c")
    return await _names_in(admin, options.clusterName.strip())


async def _names_in(admin: Admin, cluster: str) -> list[str]:
    known = (await admin.brokers.cluster()).brokers
    names = sorted(name for name, data in known.items() if data.cluster == cluster)
    if not names:
        raise NotFound(f"there is no broker in the cluster {cluster[:80]!r}")
    return names


def _identity(replica: Replica) -> str:
    alive = "null" if replica.alive is None else java_bool(replica.alive)
    return (
        f"ReplicaIdentity{{brokerName='{output.plain(replica.broker_name)}',"
        f" brokerId={replica.broker_id}, brokerAddress='{_text(replica.address)}', alive={alive}}}"
    )


async def get_broker_epoch(admin: Admin, options: argparse.Namespace) -> int:
    """Print the epochs of the logs of brokers; with -i again and again."""
    return await repeated(options.interval, 3, lambda: _broker_epoch(admin, options))


async def _broker_epoch(admin: Admin, options: argparse.Namespace) -> int:
    for address in await _replica_addresses(admin, options):
        found = await admin.controllers.epochs(address)
        output.line(f"\n#clusterName\t{output.plain(found.cluster)}")
        output.line(f"#brokerName\t{output.plain(found.broker_name)}")
        output.line(f"#brokerAddr\t{address}\n#brokerId\t{found.broker_id}")
        for it in found.epochs:
            entry = f"epoch={it.number}, startOffset={it.start}, endOffset={it.end}"
            output.line(f"#Epoch: EpochEntry{{{entry}}}")
    return 0


async def _replica_addresses(admin: Admin, options: argparse.Namespace) -> list[str]:
    if options.brokerName is not None:
        name = options.brokerName.strip()
        data = (await admin.brokers.cluster()).brokers.get(name)
        if data is None:
            raise NotFound(f"no broker {name[:80]!r} is registered; try: roquet broker ls")
        return [address for _, address in sorted(data.addresses.items())]
    if options.clusterName is None:
        raise UsageError("give -b or -c")
    return await addresses_in(admin, options.clusterName.strip())


async def elect_master(admin: Admin, options: argparse.Namespace) -> int:
    """Have a replica become the master of its set."""
    cluster, broker = options.clusterName.strip(), options.brokerName.strip()
    broker_id = number(options.brokerId.strip(), "-b", 0)
    controller = _named(options.controllerAddress)[0]
    found = await admin.controllers.elect(controller, cluster, broker, broker_id)
    output.line(f"\n#ClusterName\t{cluster}\n#BrokerName\t{broker}")
    output.line(f"#BrokerMasterAddr\t{_text(found.master_address)}")
    output.line(f"#MasterEpoch\t{_text(found.master_epoch)}")
    output.line(f"#SyncStateSetEpoch\t{_text(found.set_epoch)}")
    for place, address in sorted(found.members.items()):
        output.line(f"\t#Broker\t{place}\t{output.plain(address)}")
    return 0


async def clean_broker_metadata(admin: Admin, options: argparse.Namespace) -> int:
    """Have the controller forget replicas of a set, or all of it."""
    if not options.cleanLivingBroker and not (options.clusterName or "").strip():
        raise UsageError("give -c, or -l for brokers that are alive as well")
    listed = options.brokerControllerIdsToClean
    ids = [] if listed is None else [number(it.strip(), "-b", 0) for it in listed.split(";")]
    broker = options.brokerName.strip()
    await admin.controllers.forget(
        _named(options.controllerAddress)[0],
        broker,
        cluster=None if options.clusterName is None else options.clusterName.strip(),
        ids=ids,
        living=options.cleanLivingBroker,
    )
    output.line(f"clear broker {broker} metadata from controller success!")
    return 0


def _named(controllers: str) -> list[str]:
    """Return the addresses of `-a`. Raises UsageError for none."""
    found = [it.strip() for it in controllers.split(";") if it.strip()]
    if not found:
        raise UsageError("-a is the address of a controller, as 127.0.0.1:9878")
    return found


def _text(value: object) -> str:
    return "null" if value is None else output.plain(str(value))
