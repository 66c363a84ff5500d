"""Feed mutated bytes to every reader written in Python; those in Rust have `tools.fuzz.rust`.

`python -m tools.fuzz.python [--seconds n] [--seed s]`. An input starts as something valid and gets
drawn changes. A decoder may refuse it with the errors that its callers answer; any other exception,
and any input that takes longer than a second, is a finding.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import logging
import pkgutil
import random
import sys
import time
from typing import TYPE_CHECKING

from roquet.base.errors import RoquetError
from roquet.protocol import bodies, fastjson, headers, properties
from roquet.protocol.header import Header
from roquet.protocol.messages import message_id
from tools.fuzz.more import SEEDS, more

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SLOW_S = 1.0
FINDINGS_MAX = 10
TEXTS = (
    b'{"offsetTable":{1:0,"2":-1},"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1}}',
    b'{"topicConfigTable":{"T":{"topicName":"T","readQueueNums":4,"writeQueueNums":4,"perm":6}}}',
    (
        b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionDataSet":['
        b'{"topic":"T","subString":"*","tagsSet":[],"codeSet":[],"subVersion":1}]}]}'
    ),
    b'{"mqSet":[{"topic":"T","brokerName":"b","queueId":0}],"clientId":"c","consumerGroup":"g"}',
    b"KEYS\x01k\x02TAGS\x01t\x02UNIQ_KEY\x0100000000\x02",
    b"7F00000100002A9F0000000000000000",
    b"",
    b"[" * 200,
    b"1e400",
)
WORDS = (b"-1", b"9223372036854775808", b"null", b"\\u0000", b"\xff", b'"', b"}", b"{", b",", b"\0")


def decoders() -> Iterator[tuple[str, Callable[[bytes], object]]]:
    """Yield every function that takes bytes or fields from the wire, by name."""
    for package in (bodies, headers):
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if getattr(value, "__module__", "") != module.__name__:
                    continue
                if inspect.isclass(value) and issubclass(value, Header):
                    yield f"{module.__name__}.{name}", of_fields(value)
                elif inspect.isfunction(value) and name.startswith("decode_"):
                    if len(inspect.signature(value).parameters) == 1:
                        yield f"{module.__name__}.{name}", value
                elif inspect.isclass(value) and hasattr(value, "decode"):
                    yield f"{module.__name__}.{name}", value.decode
    yield "fastjson.read", fastjson.read
    yield "properties.read", properties.read
    yield "message_id", lambda data: message_id.parse_offset_id(data.decode(errors="replace"))
    yield from more()


def of_fields(kind: type[Header]) -> Callable[[bytes], object]:
    """Return what decodes a header of drawn fields."""
    names = [field.name for field in kind.wire_fields.values()]

    def decode(data: bytes) -> object:
        parts = data.decode(errors="replace").split(",")
        return kind.decode(dict(zip(names, parts * len(names), strict=False)))

    return decode


def seeds_of(name: str) -> tuple[bytes, ...]:
    """Return valid inputs for the decoder of this name."""
    own = [seeds for begin, seeds in SEEDS.items() if name.startswith(begin)]
    return own[0] if own else TEXTS


def mutated(draw: random.Random, seeds: tuple[bytes, ...]) -> bytes:
    """Return something that was valid once."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.randrange(6)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(5):
            case 0 if at < len(data):
                data[at] = draw.randrange(256)
            case 1:
                data[at:at] = draw.choice(WORDS)
            case 2:
                del data[at : at + draw.randrange(1, 20)]
            case 3:
                data[at:at] = data[draw.randrange(len(data) + 1) :][:200]
            case _:
                data[at:at] = draw.choice(WORDS) * draw.randrange(1, 100)
    return bytes(data)


def hunt(
    targets: Sequence[tuple[str, Callable[[bytes], object]]], draw: random.Random, seconds: float
) -> tuple[int, int]:
    """Feed drawn readers drawn inputs for a time; return (inputs, findings), ten at most."""
    end = time.monotonic() + seconds
    inputs, findings = 0, 0
    while time.monotonic() < end and findings < FINDINGS_MAX:
        name, decode = draw.choice(targets)
        data = mutated(draw, seeds_of(name))
        begun = time.process_time()
        try:
            decode(data)
        except (RoquetError, ValueError):
            pass
        except Exception as error:  # noqa: BLE001  (that is what is looked for)
            findings += 1
            print(f"{name}({data[:300]!r}): {error!r}")
        if time.process_time() - begun > SLOW_S:
            findings += 1
            print(f"{name}({data[:300]!r}) took {time.process_time() - begun:.1f} s")
        inputs += 1
    return inputs, findings


def main() -> int:
    """Run the command; the exit code says whether something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # What a broker logs of a damaged file is not looked at here.
    logging.disable(logging.CRITICAL)
    targets = list(decoders())
    inputs, findings = hunt(targets, random.Random(options.seed), options.seconds)
    print(f"seed {options.seed}: {len(targets)} readers, {inputs} inputs, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
