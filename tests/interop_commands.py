"""Every admin command of RocketMQ 5.5.0, with what to ask and how the two answers must compare.

`{addr}` and the like are facts of the twin that is asked (tests/interop_twins.py). The page on
compatibility has the same commands with the same results; a test compares the two.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SAME = "same output"
APART = "same output, figures apart"
OWN = "own figures"
ALIKE = "the same refusal: for another role, or nothing to do"
BETTER = "works; the tool cannot read the Java broker's answer"
ENDLESS = "runs until it is stopped"
DECLINED = "declined"


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """One command, asked once or several times."""

    name: str
    asked: Sequence[str]
    """Arguments of each run, in order."""
    result: str = SAME
    codes: tuple[int, ...] = ()
    """What a declined command is refused: it must compare once the broker serves these codes."""
    limit_s: float = 40.0
    """For those that go on until they are stopped."""


_AT = "-b {addr}"
_USER = f"{_AT} -u someone"
_POLICY = f"{_AT} -s User:someone"
_CONTROLLER = "-a {addr}"
_REPLICA = "-bn {broker} -c {cluster} -b 1"
_BY_KEY = "-t {topic} -k"
_BY_UID = "-t {topic} -i {uid}"
_RESET = "-g {group} -t {topic}"

COMMANDS: tuple[Command, ...] = (
    Command(
        "updateTopic",
        (
            f"{_AT} -t Made -r 3 -w 3 -p 6",
            "-c {cluster} -t MadeToo -r 2 -w 2 -o true",
            "-c {cluster} -t MadeThree -r 2 -w 2 -a +message.type=FIFO",
        ),
    ),
    Command("updateTopicList", (f"{_AT} -f {{files}}/topics.json",)),
    Command("updateTopicPerm", (f"{_AT} -t Made -p 4",)),
    Command(
        "updateSubGroup",
        (f"{_AT} -g made_group -r 3 -q 2 -s true -m false", "-c {cluster} -g made_group -r 5"),
    ),
    Command("updateSubGroupList", (f"{_AT} -f {{files}}/groups.json",)),
    Command("setConsumeMode", (f"{_AT} {_RESET} -m PULL", f"{_AT} -t Nowhere -g {{group}} -m POP")),
    Command("topicRoute", ("-t {topic}", "-t {topic} -l", "-t Nowhere")),
    Command("topicStatus", ("-t {topic}", "-t Nowhere")),
    Command("topicClusterList", ("-t {topic}",)),
    Command("topicList", ("", "-c")),
    Command("getConsumerConfig", ("-g made_group", "-g {group}")),
    Command("addBroker", ("-c {addr} -b /nowhere",), ALIKE),
    Command("removeBroker", ("-c {addr} -b a:b:1",), ALIKE),
    Command("resetMasterFlushOffset", (f"{_AT} -o 0",)),
    Command("brokerStatus", (_AT, "-c {cluster}"), OWN),
    Command("queryMsgById", ("-t {topic} -i {oid}",)),
    Command("queryMsgByKey", (f"{_BY_KEY} key-7-5", f"{_BY_KEY} nothing", f"{_BY_KEY} a -p T")),
    Command(
        "queryMsgByUniqueKey",
        (_BY_UID, f"{_BY_UID} -a", f"{_BY_UID} -g {{online}} -d {{client}}"),
        APART,
    ),
    Command("queryMsgByOffset", ("-t {topic} -b {broker} -i 1 -o 0",)),
    Command("queryMsgTraceById", ("-i {uid} -t {topic}",)),
    Command("printMsg", ("-t {topic} -d true",)),
    Command("printMsgByQueue", ("-t {topic} -a {broker} -i 1 -p true -d true -f true",)),
    Command("sendMsgStatus", ("-b {broker} -c 3",), APART),
    Command("brokerConsumeStats", (_AT, f"{_AT} -o true")),
    Command("producerConnection", ("-g {makers} -t {topic}", "-g nobody -t {topic}")),
    Command("consumerConnection", ("-g {online}", "-g nobody", f"-g {{online}} {_AT}")),
    Command(
        "consumerProgress",
        ("", "-g {group}", "-g {online} -t {topic}", "-g {online} -s true -t {topic}"),
        APART,
    ),
    Command("consumerStatus", ("-g {online}", "-g {online} -i {client}"), APART),
    Command("producer", (_AT,)),
    Command("clusterList", ("", "-m", "-c {cluster}"), APART),
    Command(
        "cloneGroupOffset",
        (
            "-s {group} -d made_group -t {topic} -o true",
            "-s {group} -d not_a_group -t {topic} -o true",
        ),
    ),
    Command("updateKvConfig", ("-s SPACE -k key -v value",)),
    Command("deleteKvConfig", ("-s SPACE -k key",)),
    Command(
        "updateOrderConf",
        ("-t {topic} -m put -v {broker}:4", "-t {topic} -m get", "-t {topic} -m delete"),
    ),
    Command("wipeWritePerm", ("-b {broker}",)),
    Command("addWritePerm", ("-b {broker}",)),
    Command(
        "resetOffsetByTime",
        (
            f"{_RESET} -s 0 -f true",
            f"{_RESET} -s now",
            f"{_RESET} -s -1 {_AT} -q 1 -o 1",
            "-g nobody -t {topic} -s 0",
        ),
    ),
    Command("skipAccumulatedMessage", (_RESET, "-g {online} -t {topic}")),
    Command("cleanExpiredCQ", (_AT, "-c {cluster}")),
    Command("deleteExpiredCommitLog", (_AT,)),
    Command("cleanUnusedTopic", (_AT,)),
    Command("startMonitoring", ("",), ENDLESS, limit_s=2.0),
    Command("statsAll", ("", "-t {topic}"), APART),
    Command("allocateMQ", ("-t {topic} -i 10.0.0.1,10.0.0.2",)),
    Command("checkMsgSendRT", ("-t {topic} -a 2",), APART),
    Command("clusterRT", ("-a 1 -c {cluster}",), APART, limit_s=3.0),
    Command("getNamesrvConfig", ("",), OWN),
    Command("updateNamesrvConfig", ("-k enableTopicList -v true", "-k kvConfigPath -v /tmp/x")),
    Command(
        "updateBrokerConfig",
        (f"{_AT} -k brokerPermission -v 6", f"{_AT} -k brokerConfigPath -v /tmp/x"),
    ),
    Command("getBrokerConfig", (_AT,), OWN),
    Command(
        "queryCq",
        (
            f"-t {{topic}} -q 2 -i 0 -c 2 {_AT}",
            f"-t {{topic}} -q 2 -i 0 -c 2 {_AT} -g nobody",
        ),
    ),
    Command("sendMessage", ("-t {topic} -p hello -k tk -c tt -b {broker} -i 1",)),
    Command("consumeMessage", ("-t {topic} -b {broker} -i 2 -o 0 -c 2",)),
    Command("updateStaticTopic", ("-b {broker} -t Static -qn 2",), DECLINED, (513,)),
    Command("remappingStaticTopic", ("-b {broker} -t Static",), DECLINED),
    Command(
        "exportMetadata",
        (f"{_AT} -f {{files}}/export -t", "-c {cluster} -f {files}/export"),
        BETTER,
    ),
    Command("exportConfigs", ("-c {cluster} -f {files}/export",)),
    Command("exportMetrics", ("-c {cluster} -f {files}/export",), BETTER),
    Command("exportMetadataInRocksDB", ("-p {files} -t topics",), ALIKE),
    Command("exportPopRecord", (f"{_AT} -d true",)),
    Command("haStatus", (_AT,), APART),
    Command("getSyncStateSet", (f"{_CONTROLLER} -b {{broker}}",), ALIKE),
    Command("getBrokerEpoch", ("-b {broker}",), DECLINED, (1007,)),
    Command("getControllerMetaData", (_CONTROLLER,), ALIKE),
    Command("getControllerConfig", (_CONTROLLER,), ALIKE),
    Command("updateControllerConfig", (f"{_CONTROLLER} -k a -v b",), ALIKE),
    Command("electMaster", (f"{_CONTROLLER} {_REPLICA}",), ALIKE),
    Command("cleanBrokerMetadata", (f"{_CONTROLLER} {_REPLICA}",), ALIKE),
    Command("dumpCompactionLog", ("-f {files}/topics.json",), ALIKE),
    Command("getColdDataFlowCtrInfo", (_AT,), DECLINED, (2003,)),
    Command("updateColdDataFlowCtrGroupConfig", (f"{_AT} -g g -v 1000",), DECLINED, (2001,)),
    Command("removeColdDataFlowCtrGroupConfig", (f"{_AT} -g g",), DECLINED, (2002,)),
    Command("setCommitLogReadAheadMode", (f"{_AT} -m 0",), DECLINED, (2004,)),
    Command("createUser", (f"{_USER} -p secret -t Normal",), DECLINED, (3001,)),
    Command("updateUser", (f"{_USER} -s disable",), DECLINED, (3002,)),
    Command("getUser", (_USER,), DECLINED, (3004,)),
    Command("listUser", (_AT,), DECLINED, (3005,)),
    Command("copyUser", ("-f {addr} -t {addr} -u someone",), DECLINED, (3004,)),
    Command("deleteUser", (_USER,), DECLINED, (3003,)),
    Command("createAcl", (f"{_POLICY} -r Topic:* -a Pub -d Allow",), DECLINED, (3006,)),
    Command("updateAcl", (f"{_POLICY} -r Topic:* -a Sub -d Allow",), DECLINED, (3007,)),
    Command("getAcl", (_POLICY,), DECLINED, (3009,)),
    Command("listAcl", (_AT,), DECLINED, (3010,)),
    Command("copyAcl", ("-f {addr} -t {addr} -s User:someone",), DECLINED, (3009,)),
    Command("deleteAcl", (_POLICY,), DECLINED, (3008,)),
    Command("rocksDBConfigToJson", ("-t topics -c {cluster}",), DECLINED, (355,)),
    Command("checkRocksdbCqWriteProgress", ("-c {cluster}",), DECLINED, (354,)),
    Command("switchTimerEngine", (f"{_AT} -e F",), DECLINED, (5001,)),
    Command("getBrokerLiteInfo", (_AT,), APART),
    Command("getParentTopicInfo", ("-p {topic}",), ALIKE),
    Command("getLiteTopicInfo", ("-p {topic} -l one",), ALIKE),
    Command("getLiteClientInfo", ("-p {topic} -g {group} -c c",), ALIKE),
    Command("getLiteGroupInfo", ("-p {topic} -g {group}",), ALIKE),
    Command("triggerLiteDispatch", ("-p {topic} -g {group}",), ALIKE),
    Command("deleteSubGroup", (f"{_AT} -g made_group -r true", "-c {cluster} -g listed_group_1")),
    Command("deleteTopic", ("-c {cluster} -t Made", "-c {cluster} -t Nowhere")),
)
