"""Settings: declared where they are used, loaded here (architecture §5).

A knob is a field of a small frozen dataclass, declared with `setting`: its Java name, default,
limits and whether it may change while running. `load` fills such a dataclass, and those nested in
it, from flags, environment and a Java property file, in this order of precedence.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import typing
from typing import TYPE_CHECKING, Any, TypeVar

from roquet.base.durable import read_front
from roquet.base.errors import UsageError
from roquet.base.java_keys import JAVA_KEYS
from roquet.base.properties_file import read_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

ENV_PREFIX = "ROQUET_"
VALUE_LENGTH_MAX = 8192
HIDDEN = "******"

C = TypeVar("C")

_META = "setting"
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_UNKNOWN_SHOWN = 20
_WRONG_SHOWN = 20
_FILE_SIZE_MAX = 1 << 20
_REAL = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?", re.ASCII)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
I64_MAX = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is known of one knob besides its value."""

    java: str
    """Name in property files."""
    doc: str
    unit: str = ""
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    live: bool = False
    """May be changed while running (UPDATE_BROKER_CONFIG)."""
    secret: bool = False
    """Never shown: not in dumps, answers, logs or errors.

    This mark alone decides: whatever prints settings goes through `as_properties` or `repr`.
    """
    check: Callable[[Any], str | None] | None = None
    """Returns the rule that a value breaks."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `load` noticed besides the values."""

    unknown: tuple[str, ...] = ()
    """Keys that nobody knows: likely slips of the pen."""
    unimplemented: tuple[str, ...] = ()
    """Keys of a Java broker that have no effect here."""
    meant: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Unknown key -> the setting that it resembles."""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Java name -> `flag`, `env` or `file`, for every value given."""

    def lines(self) -> list[str]:
        """Return what to print at start, at most two lines."""
        out: list[str] = []
        if self.unknown:
            shown = [
                f"{key[:80]} (did you mean {self.meant[key]}?)" if key in self.meant else key[:80]
                for key in self.unknown[:_UNKNOWN_SHOWN]
            ]
            more = len(self.unknown) - len(shown)
            out.append(
                f"unknown settings ignored: {', '.join(shown)}"
                + (f" and {more} more" if more > 0 else "")
            )
        if self.unimplemented:
            out.append(f"known settings without effect here: {', '.join(self.unimplemented)}")
        return out


def setting(
    java: str,
    default: object = dataclasses.MISSING,
    doc: str = "",
    *,
    unit: str = "",
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    live: bool = False,
    secret: bool = False,
    check: Callable[[Any], str | None] | None = None,
) -> Any:
    """Declare a field of a dataclass of settings.

    As in `port: int = setting("listenPort", 10911, "Main port.", low=0, high=65535)`. The type is
    bool, int, float or str, or one of these `| None`. Without a default it has to be given.
    """
    about = Setting(
        java=java,
        doc=doc,
        unit=unit,
        low=low,
        high=high,
        choices=choices,
        live=live,
        secret=secret,
        check=check,
    )
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={_META: about}, repr=not secret)
    return dataclasses.field(default=default, metadata={_META: about}, repr=not secret)


def load(
    cls: type[C],
    file_props: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, str | int | bool | None] | None = None,
    *,
    other_env: Collection[str] = (),
) -> tuple[C, Report]:
    """Fill `cls`, a dataclass of settings or of other such dataclasses.

    One rule for files, environment and flags: upper and lower case, `-`, `_` and `.` in a name do
    not matter; where a name stands there twice, the exact spelling counts. The environment variable
    is ROQUET_LISTEN_PORT; those in `other_env` belong to somebody else. A flag that is None is not
    given. Raises UsageError, one line that names key, value and rule of all that is wrong.
    """
    known = {about.java: env_name(about.java) for _, about, _ in settings(cls)}
    spelled = {_plain(java): java for java in known}
    given: dict[str, tuple[str, str]] = {}
    unknown: list[str] = []
    unimplemented: list[str] = []
    wrong: list[str] = []
    for key, value in exactly_named(file_props or {}, known).items():
        if key in known:
            given[key] = (value.strip(), "file")
        else:
            is_java = _plain(key) in _java_keys() and _plain(key) not in spelled
            (unimplemented if is_java else unknown).append(key)
    from_env, strange = _from_environment(env or {}, known, other_env)
    given |= from_env
    unknown += strange
    for name, flag in (flags or {}).items():
        java = spelled.get(_plain(name))
        if flag is not None and java is not None:
            given[java] = (_text(flag), "flag")
        elif flag is not None:
            text = f"{name[:80]} = {str(flag)[:80]!r} (flag): there is no such setting"
            wrong.append(text + resembling(name, known))
    config = _fill(cls, given, wrong)
    if config is None or wrong:
        raise UsageError(_together(wrong))
    return config, Report(
        unknown=tuple(sorted(unknown)),
        unimplemented=tuple(sorted(unimplemented)),
        meant=_meant(unknown, known),
        sources={java: source for java, (_, source) in given.items()},
    )


def _from_environment(
    env: Mapping[str, str], known: Mapping[str, str], others: Collection[str]
) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Return what variables give, and those that begin like ours and give nothing."""
    spelled = {_plain(java): java for java in known}
    exact = {name: java for java, name in known.items()}
    given: dict[str, tuple[str, str]] = {}
    unknown: list[str] = []
    for name, value in env.items():
        java = exact.get(name)
        if java is None:
            if name[: len(ENV_PREFIX)].upper() != ENV_PREFIX or name in others:
                continue
            java = spelled.get(_plain(name[len(ENV_PREFIX) :]))
            if java is None or known[java] in env:
                unknown.append(name)
                continue
        given[java] = (value.strip(), "env")
    return given, unknown


def exactly_named(given: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """Return settings under their exact names, whatever their case in a file.

    Of two spellings the exact one counts, else the first; the other keeps its name, so that it is
    told as a setting without effect.
    """
    spelled = {_plain(java): java for java in known}
    found: dict[str, str] = {}
    for key, value in given.items():
        java = spelled.get(_plain(key), key)
        is_second = java != key and (java in given or java in found)
        found[key if is_second else java] = value
    return found


@functools.cache
def _java_keys() -> frozenset[str]:
    return frozenset(map(_plain, JAVA_KEYS))


def _together(wrong: list[str]) -> str:
    """Return all that is wrong in one line."""
    if len(wrong) == 1:
        return wrong[0]
    more = len(wrong) - _WRONG_SHOWN
    text = "; ".join(wrong[:_WRONG_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return f"{len(wrong)} settings are wrong: {text}"


def read_property_file(file: Path, cls: type[Any]) -> dict[str, str]:
    """Read a file of settings of `cls`. Raises OSError, and UsageError for what is no such file.

    A file of random bytes must not start a server with defaults on all addresses.
    """
    data = read_front(file, _FILE_SIZE_MAX + 1)
    if len(data) > _FILE_SIZE_MAX:
        raise UsageError(f"{file}: more than {_FILE_SIZE_MAX} bytes: it is no property file")
    control = _CONTROL.search(data)
    if control is not None:
        line = data.count(b"\n", 0, control.start()) + 1
        raise UsageError(f"{file}: line {line} has a control character: it is no property file")
    given = read_properties(data)
    known = {about.java for _, about, _ in settings(cls)}
    given = exactly_named(given, (*JAVA_KEYS, *known))
    if given and known.isdisjoint(given) and JAVA_KEYS.isdisjoint(given):
        raise UsageError(
            f"{file}: none of its {len(given)} keys is a setting, the first is"
            f" {next(iter(given))[:40]!r}: a property file has lines like listenPort=10911"
        )
    return given


def resembling(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean listenPort?`, or nothing when no setting is like `name`."""
    close = _closest(name, known)
    return f"; did you mean {close}?" if close else ""


def _closest(name: str, known: Iterable[str]) -> str | None:
    # Slips of the pen are seldom, and a start imports no more than it needs.
    import difflib  # noqa: PLC0415

    spelled = {_plain(java): java for java in known}
    close = difflib.get_close_matches(_plain(name[:80]), spelled, n=1, cutoff=0.75)
    return spelled[close[0]] if close else None


def _meant(unknown: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key in itertools.islice(unknown, _UNKNOWN_SHOWN):
        close = _closest(key.removeprefix(ENV_PREFIX), known)
        if close is not None:
            found[key] = known[close] if key.startswith(ENV_PREFIX) else close
    return found


def settings(cls: type[Any]) -> Iterator[tuple[tuple[str, ...], Setting, Any]]:
    """Go through all settings of `cls` and those nested in it: (path of fields, about, type)."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        about = field.metadata.get(_META)
        kind = hints[field.name]
        if isinstance(about, Setting):
            yield (field.name,), about, kind
        elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
            for path, inner, inner_kind in settings(kind):
                yield (field.name, *path), inner, inner_kind


def as_properties(config: object) -> dict[str, str]:
    """Return every setting with its value as text, by Java name; unset ones left out.

    What is secret is shown as stars, whatever its length.
    """
    found: dict[str, str] = {}
    for about, value in _values(config):
        if value is not None:
            found.setdefault(about.java, HIDDEN if about.secret and value else _text(value))
    return dict(sorted(found.items()))


def changed_texts(before: C, after: C) -> dict[str, str]:
    """Return the settings that differ, by Java name, as a property file has them.

    Secrets are among them in full: this is for the file that the settings come from, not for eyes.
    """
    return {
        about.java: "" if new is None else _text(new)
        for (about, old), (_, new) in zip(_values(before), _values(after), strict=True)
        if old != new
    }


def change(config: C, changes: Mapping[str, str]) -> C:
    """Return the configuration with live settings changed, all or none.

    A secret that comes as the stars it was shown as stays what it is: a configuration that is
    read and sent back does not overwrite it. Raises UsageError for a key that is unknown or not
    live and for a value against its rule, and for values with control characters or longer than
    VALUE_LENGTH_MAX (bad input B13).
    """
    known = {about.java: about for _, about, _ in settings(type(config))}
    given: dict[str, tuple[str, str]] = {}
    for key, value in changes.items():
        about = known.get(key)
        if about is not None and about.secret and value.strip() == HIDDEN:
            continue
        if about is None or not about.live:
            raise UsageError(f"{key[:80]!r} cannot be changed while running")
        if len(value) > VALUE_LENGTH_MAX or any(ord(char) < 32 for char in value):
            raise UsageError(f"{key}: a value has no control characters and is one line")
        given[key] = (value.strip(), "update")
    return _replaced(config, given)


def env_name(java: str) -> str:
    """Return the environment variable of a Java name: `listenPort` -> `ROQUET_LISTEN_PORT`."""
    return ENV_PREFIX + _HUMP.sub("_", java).replace(".", "_").upper()


def how_to_set(java: str) -> str:
    """Return the three ways to give a server a setting, as a part of a sentence."""
    return f"by -s {java}=VALUE, the variable {env_name(java)} or a line of the property file"


def flag_name(java: str) -> str:
    """Return the flag of a Java name: `listenPort` -> `listen-port`."""
    return _HUMP.sub("-", java).replace(".", "-").lower()


def _values(config: object) -> Iterator[tuple[Setting, Any]]:
    for path, about, _ in settings(type(config)):
        value: Any = config
        for name in path:
            value = getattr(value, name)
        yield about, value


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(".", "").lower()


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _fill(cls: type[C], given: Mapping[str, tuple[str, str]], wrong: list[str]) -> C | None:
    """Return the dataclass; None when something of it is wrong, which is then in `wrong`."""
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    before = len(wrong)
    for field in dataclasses.fields(typing.cast("Any", cls)):
        kind = hints[field.name]
        about = field.metadata.get(_META)
        if not isinstance(about, Setting):
            if dataclasses.is_dataclass(kind) and isinstance(kind, type):
                values[field.name] = _fill(kind, given, wrong)
        elif about.java in given:
            try:
                values[field.name] = _value(about, kind, *given[about.java])
            except UsageError as error:
                # A setting that two parts read is told once.
                if str(error) not in wrong:
                    wrong.append(str(error))
                before = -1
        elif field.default is dataclasses.MISSING:
            wrong.append(f"{about.java} has to be set ({how_to_set(about.java)}): {about.doc}")
    return None if len(wrong) != before else _made(cls, values, wrong)


def _made(cls: type[C], values: Mapping[str, Any], wrong: list[str]) -> C | None:
    try:
        return cls(**values)
    except UsageError as error:
        wrong.append(str(error))
        return None


def _replaced(config: C, given: Mapping[str, tuple[str, str]]) -> C:
    hints = typing.get_type_hints(type(config))
    values: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast("Any", config)):
        kind = hints[field.name]
        about = field.metadata.get(_META)
        if isinstance(about, Setting):
            if about.java in given:
                values[field.name] = _value(about, kind, *given[about.java])
        elif dataclasses.is_dataclass(kind):
            values[field.name] = _replaced(getattr(config, field.name), given)
    changed: C = dataclasses.replace(typing.cast("Any", config), **values)
    return changed


def _value(about: Setting, kind: Any, text: str, source: str) -> Any:
    value, rule = _read(about, kind, text)
    if rule is None and about.check is not None:
        rule = about.check(value)
    if about.secret and text == HIDDEN:
        rule = "these stars stand for the secret where settings are shown; give the secret itself"
    if rule is not None:
        shown = HIDDEN if about.secret else repr(text[:80])
        raise UsageError(f"{about.java} = {shown} ({source}): {rule}")
    return value


def _read(about: Setting, kind: Any, text: str) -> tuple[Any, str | None]:
    """Return (value, broken rule)."""
    options = set(typing.get_args(kind) or (kind,))
    if type(None) in options and not text:
        return None, None
    if bool in options:
        word = text.lower()
        return word == "true", None if word in {"true", "false"} else "must be true or false"
    if int in options:
        return _read_integer(about, text)
    if float in options:
        good = _REAL.fullmatch(text) is not None
        return float(text) if good else 0.0, None if good else "must be a decimal number"
    if about.choices and text not in about.choices:
        return text, f"must be one of {', '.join(about.choices)}"
    return text, None


def _read_integer(about: Setting, text: str) -> tuple[int, str | None]:
    low = -I64_MAX - 1 if about.low is None else about.low
    high = I64_MAX if about.high is None else about.high
    if _INTEGER.fullmatch(text) is None:
        return 0, "must be an integer" + _bounds(about)
    value = int(text)
    return value, None if low <= value <= high else "must be an integer" + _bounds(about)


def _bounds(about: Setting) -> str:
    unit = f" {about.unit}" if about.unit else ""
    if about.low is not None and about.high is not None:
        return f" within {about.low}..{about.high}{unit}"
    if about.low is not None:
        return f" of at least {about.low}{unit}"
    if about.high is not None:
        return f" of at most {about.high}{unit}"
    return ""
