"""Topic tables: bodies of registrations, of 21, 17/18/351, and topics.json."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.model.data_version import DataVersion
from roquet.model.topic import READ_WRITE, FilterType, TopicConfig
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.protocol.bodies.fields import Json


def data_version_json(version: DataVersion) -> Json:
    """Return a data version's fields."""
    return {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp,
    }


def data_version_of(source: Mapping[str, Any]) -> DataVersion:
    """Read a data version. Raises JsonError."""
    return DataVersion(
        counter=fields.i64(source, "counter"),
        state_version=fields.i64(source, "stateVersion"),
        timestamp=fields.i64(source, "timestamp"),
    )


def encode_data_version(version: DataVersion) -> bytes:
    """Write a data version: body of 322 and header field `dataVersion`."""
    return fastjson.java(data_version_json(version))


def decode_data_version(data: bytes) -> DataVersion:
    """Read a data version. Raises JsonError."""
    return data_version_of(fastjson.read_object(data))


def topic_json(config: TopicConfig) -> Json:
    """Return a topic configuration's fields."""
    return {
        "attributes": dict(config.attributes),
        "order": config.order,
        "perm": config.perm,
        "readQueueNums": config.read_queues,
        "topicFilterType": str(config.filter_type),
        "topicName": config.name,
        "topicSysFlag": config.sys_flag,
        "writeQueueNums": config.write_queues,
    }


def topic_of(source: Mapping[str, Any], name: str | None = None) -> TopicConfig:
    """Read a topic configuration; `name` stands in where it has none. Raises JsonError."""
    return TopicConfig(
        name=fields.optional_text(source, "topicName") or name or "",
        read_queues=fields.i32(source, "readQueueNums", 16),
        write_queues=fields.i32(source, "writeQueueNums", 16),
        perm=fields.i32(source, "perm", READ_WRITE),
        filter_type=filter_type_of(fields.optional_text(source, "topicFilterType")),
        sys_flag=fields.i32(source, "topicSysFlag"),
        order=fields.boolean(source, "order"),
        attributes=fields.text_map(source, "attributes"),
    )


def filter_type_of(text: str | None) -> FilterType:
    """Return the filter type a text names; anything unknown is the single tag."""
    return FilterType.MULTI_TAG if text == FilterType.MULTI_TAG else FilterType.SINGLE_TAG


def topic_text(config: TopicConfig) -> str:
    """Return the one-line form used in compressed registrations; order and flag are lost in it."""
    attributes = fastjson.java(dict(config.attributes)).decode()
    return (
        f"{config.name} {config.read_queues} {config.write_queues} {config.perm} "
        f"{config.filter_type} {attributes}"
    )


def topic_of_text(text: str) -> TopicConfig:
    """Read the one-line form: five parts, or six. Raises JsonError.

    Attributes that are no JSON (Java splits them at their spaces) count as none.
    """
    parts = text.split(" ", 5)
    if len(parts) < 5:
        raise fastjson.JsonError("a topic line has at least five parts")
    attributes: dict[str, str] = {}
    if len(parts) == 6 and parts[5].strip():
        try:
            attributes = fields.text_map({"a": fastjson.read_object(parts[5].encode())}, "a")
        except fastjson.JsonError:
            attributes = {}
    return TopicConfig(
        name=parts[0],
        read_queues=fields.number(parts[1], "readQueueNums", fields.I32_MAX),
        write_queues=fields.number(parts[2], "writeQueueNums", fields.I32_MAX),
        perm=fields.number(parts[3], "perm", fields.I32_MAX),
        filter_type=filter_type_of(parts[4]),
        attributes=attributes,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicTableBody:
    """A topic table with its version (Java: TopicConfigAndMappingSerializeWrapper).

    The mapping fields belong to static topics and are carried as they came.
    """

    topics: Mapping[str, TopicConfig]
    version: DataVersion
    mapping_version: DataVersion | None = None
    mapping_info: Json | None = None
    mapping_detail: Json | None = None

    def to_json(self) -> Json:
        """Return the wrapper's fields; those of mappings only when there is a mapping version."""
        out: Json = {
            "dataVersion": data_version_json(self.version),
            "topicConfigTable": fastjson.Made(self.topics, topic_json),
        }
        if self.mapping_version is not None:
            out["mappingDataVersion"] = data_version_json(self.mapping_version)
            out["topicQueueMappingDetailMap"] = self.mapping_detail or {}
            out["topicQueueMappingInfoMap"] = self.mapping_info or {}
        return out

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> Self:
        """Read the wrapper's fields. Raises JsonError."""
        table = fields.obj(source, "topicConfigTable")
        mapped = source.get("mappingDataVersion") is not None
        return cls(
            topics={
                name: topic_of(fields.as_object(item, name), name) for name, item in table.items()
            },
            version=data_version_of(fields.obj(source, "dataVersion")),
            mapping_version=(
                data_version_of(fields.obj(source, "mappingDataVersion")) if mapped else None
            ),
            mapping_info=fields.obj(source, "topicQueueMappingInfoMap") if mapped else None,
            mapping_detail=fields.obj(source, "topicQueueMappingDetailMap") if mapped else None,
        )

    def encode(self) -> bytes:
        """Write the body of a GET_ALL_TOPIC_CONFIG answer or an old registration."""
        return fastjson.java(self.to_json())

    def encode_file(self) -> bytes:
        """Write topics.json."""
        return fastjson.pretty(self.to_json())

    @classmethod
    def decode(cls, data: bytes, *, tolerant_size_max: int = fastjson.TOLERANT_SIZE_MAX) -> Self:
        """Read body or file. Raises JsonError."""
        return cls.of_json(fastjson.read_object(data, tolerant_size_max=tolerant_size_max))


def encode_topic(config: TopicConfig) -> bytes:
    """Write one topic configuration (answer to 351)."""
    return fastjson.java(topic_json(config))


def decode_topic(data: bytes) -> TopicConfig:
    """Read one topic configuration. Raises JsonError."""
    return topic_of(fastjson.read_object(data))


def encode_topic_configs(configs: Iterable[TopicConfig]) -> bytes:
    """Write the body of 18 (Java: CreateTopicListRequestBody)."""
    return fastjson.java({"topicConfigList": [topic_json(config) for config in configs]})


def decode_topic_configs(data: bytes) -> list[TopicConfig]:
    """Read the body of 18. Raises JsonError."""
    source = fastjson.read_object(data, tolerant_size_max=fastjson.REQUEST_SIZE_MAX)
    return fields.at_once(topic_configs_of(source))


def topic_configs_of(source: Mapping[str, Any]) -> fields.Steps[list[TopicConfig]]:
    """Read the fields of the body of 18, in steps; its array may be parts. Raises JsonError."""
    found: list[TopicConfig] = []
    for item, is_due in fields.paced_objects(source, "topicConfigList"):
        found.append(topic_of(item))
        if is_due:
            yield
    return found


def encode_topic_list(topics: Iterable[str], broker_address: str | None = None) -> bytes:
    """Write a TopicList (206, 224, 304, 305, 311-313, 343)."""
    body: Json = {"topicList": sorted(topics)}
    if broker_address is not None:
        body["brokerAddr"] = broker_address
    return fastjson.java(body)


def topic_list_body(rows: bytes) -> bytes:
    """Write a TopicList around its names, as JSON, separated by commas."""
    return b'{"topicList":[%b]}' % rows


def decode_topic_list(data: bytes) -> tuple[list[str], str | None]:
    """Read a TopicList: (topics, broker address). Raises JsonError."""
    source = fastjson.read_object(data)
    return fields.texts(source, "topicList"), fields.optional_text(source, "brokerAddr")
