"""Commands to bytes and back, over the compiled codec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet._native import decode_frames, encode_command, project_records
from roquet.base.errors import BrokenFrame
from roquet.base.limits import FRAME_SIZE_MAX
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from typing_extensions import Buffer

    NativeFrame = tuple[int, int, int, str, int, int, str | None, dict[str, str] | None, bytes]


def decode(data: Buffer, frame_size_max: int = FRAME_SIZE_MAX) -> tuple[list[Command], int]:
    """Decode the whole frames at the start of `data`; return them and the bytes used.

    Raises BrokenFrame as soon as what follows cannot become a frame.
    """
    try:
        frames, used = decode_frames(data, frame_size_max)
    except ValueError as error:
        raise BrokenFrame(str(error)) from error
    return [command_of(frame) for frame in frames], used


def project(records: bytes, projection: str) -> bytes:
    """Return stored records with only the fields that a projection wants, bodies never.

    Raises ValueError for a projection that is none.
    """
    return project_records(records, projection)


def command_of(frame: NativeFrame) -> Command:
    """Return the command of a frame that compiled code has decoded."""
    encoding, code, flag, language, version, opaque, remark, ext, body = frame
    return Command(code, ext, body, remark, flag, opaque, language, version, encoding)


def encode(
    command: Command,
    *,
    opaque: int | None = None,
    flag: int | None = None,
    encoding: int | None = None,
) -> bytes:
    """Encode a whole frame, with another opaque, flag or header encoding when given.

    The command itself stays as it is, so that one command can go to several peers at once.
    """
    return encode_command(
        command.encoding if encoding is None else encoding,
        command.code,
        command.flag if flag is None else flag,
        command.language,
        command.version,
        command.opaque if opaque is None else opaque,
        command.remark,
        command.ext,
        command.body,
    )


def encode_start(command: Command) -> bytes:
    """Encode all of a frame but its body, which is to be written right behind."""
    return encode_command(
        command.encoding,
        command.code,
        command.flag,
        command.language,
        command.version,
        command.opaque,
        command.remark,
        command.ext,
        command.body,
        body_apart=True,
    )
