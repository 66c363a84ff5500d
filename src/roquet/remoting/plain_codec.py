"""A stand-in for the compiled codec, only until that is there: JSON headers, the happy path."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

Frame = tuple[int, int, int, str, int, int, "str | None", "dict[str, str] | None", bytes]


def decode_frames(data: Buffer, frame_size_max: int = 16_777_216) -> tuple[list[Frame], int]:
    """See the native stub."""
    view = memoryview(data)
    frames: list[Frame] = []
    at = 0
    while len(view) - at >= 4:
        total = int.from_bytes(view[at : at + 4], signed=True)
        if not 4 <= total <= frame_size_max - 4:
            if frames:
                break
            raise ValueError(f"frame length {total}")
        if len(view) - at >= 8:
            header_size = int.from_bytes(view[at + 5 : at + 8])
            if view[at + 4] != 0 or not 0 < header_size <= total - 4:
                if frames:
                    break
                raise ValueError("header length or type")
        if len(view) - at < 4 + total:
            break
        try:
            frames.append(_frame(view[at + 4 : at + 4 + total]))
        except (ValueError, RecursionError) as error:
            if frames:
                break
            raise ValueError("header") from error
        at += 4 + total
    return frames, at


def _frame(frame: memoryview) -> Frame:
    size = int.from_bytes(frame[1:4])
    header = json.loads(bytes(frame[4 : 4 + size]))
    if not isinstance(header, dict):
        raise ValueError("not an object")  # noqa: TRY004
    ext = header.get("extFields")
    if ext is not None:
        ext = {key: str(value) for key, value in ext.items() if value is not None}
    return (
        0,
        int(header.get("code", 0)),
        int(header.get("flag", 0)),
        str(header.get("language", "JAVA")),
        int(header.get("version", 0)),
        int(header.get("opaque", 0)),
        header.get("remark"),
        ext,
        bytes(frame[4 + size :]),
    )


def encode_command(  # noqa: PLR0917  (as in the native stub)
    encoding: int,
    code: int,
    flag: int,
    language: str,
    version: int,
    opaque: int,
    remark: str | None,
    ext: Mapping[str, str] | None,
    body: Buffer,
) -> bytes:
    """See the native stub."""
    del encoding
    header: dict[str, object] = {
        "code": code,
        "flag": flag,
        "language": language,
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": version,
    }
    if remark is not None:
        header["remark"] = remark
    if ext is not None:
        header["extFields"] = dict(ext)
    text = json.dumps(header).encode()
    body = bytes(body)
    return (4 + len(text) + len(body)).to_bytes(4) + len(text).to_bytes(4) + text + body
