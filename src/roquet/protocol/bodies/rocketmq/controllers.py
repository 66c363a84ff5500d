"""What a controller, and a broker under one, answer: replicas in sync, epochs, members."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One broker of a set (Java: BrokerReplicasInfo.ReplicaIdentity)."""

    broker_name: str
    broker_id: int
    address: str | None
    alive: bool | None

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> Self:
        """Read the fields. Raises JsonError."""
        alive = source.get("alive")
        return cls(
            broker_name=fields.text(source, "brokerName"),
            broker_id=fields.i64(source, "brokerId"),
            address=fields.optional_text(source, "brokerAddress"),
            alive=None if alive is None else fields.boolean(source, "alive"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSet:
    """The replicas of one broker name (Java: BrokerReplicasInfo.ReplicasInfo)."""

    master_id: int | None
    """None while the set has no master."""
    master_address: str | None
    master_epoch: int | None
    set_epoch: int | None
    in_sync: tuple[Replica, ...]
    not_in_sync: tuple[Replica, ...]

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> Self:
        """Read the fields. Raises JsonError."""
        return cls(
            master_id=_optional_i64(source, "masterBrokerId"),
            master_address=fields.optional_text(source, "masterAddress"),
            master_epoch=_optional_i64(source, "masterEpoch"),
            set_epoch=_optional_i64(source, "syncStateSetEpoch"),
            in_sync=tuple(map(Replica.of_json, fields.objects(source, "inSyncReplicas"))),
            not_in_sync=tuple(map(Replica.of_json, fields.objects(source, "notInSyncReplicas"))),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The part of a log that one master wrote (Java: EpochEntry). Offsets are bytes."""

    number: int
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The epochs of a broker's log (Java: EpochEntryCache)."""

    cluster: str
    broker_name: str
    broker_id: int
    epochs: tuple[Epoch, ...]
    """The last one ends where the log does."""


def encode_broker_names(names: Iterable[str]) -> bytes:
    """Write the body of CONTROLLER_GET_SYNC_STATE_DATA (1006)."""
    return fastjson.java(list(names))


def decode_replica_sets(data: bytes) -> dict[str, ReplicaSet]:
    """Read the answer to 1006: broker name -> its replicas. Raises JsonError."""
    table = fields.obj(fastjson.read_object(data), "replicasInfoTable")
    return {name: ReplicaSet.of_json(fields.obj(table, name)) for name in table}


def decode_epochs(data: bytes) -> Epochs:
    """Read the answer to GET_BROKER_EPOCH_CACHE (1007). Raises JsonError."""
    source = fastjson.read_object(data)
    end = fields.i64(source, "maxOffset")
    rows = fields.objects(source, "epochList")
    return Epochs(
        cluster=fields.text(source, "clusterName"),
        broker_name=fields.text(source, "brokerName"),
        broker_id=fields.i64(source, "brokerId"),
        epochs=tuple(
            Epoch(
                number=fields.i32(row, "epoch"),
                start=fields.i64(row, "startOffset"),
                end=end if index == len(rows) - 1 else fields.i64(row, "endOffset"),
            )
            for index, row in enumerate(rows)
        ),
    )


def decode_members(data: bytes) -> dict[int, str]:
    """Read the answer to CONTROLLER_ELECT_MASTER (1002): id -> address. Raises JsonError.

    The group of members (Java: BrokerMemberGroup) stands beside the set in sync.
    """
    if not data:
        return {}
    group = fields.obj(fastjson.read_object(data), "brokerMemberGroup")
    return {
        fields.number(key, "brokerAddrs"): address
        for key, address in fields.text_map(group, "brokerAddrs").items()
    }


def _optional_i64(source: Mapping[str, Any], name: str) -> int | None:
    return None if source.get(name) is None else fields.i64(source, name)
