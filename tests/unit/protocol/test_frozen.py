"""Objects of frozen dataclasses that are made by a twin are the same in all that can be seen."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from roquet.model import frozen


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """With defaults of both kinds, and one field by name only."""

    name: str
    marks: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    size: int = 3
    kind: str = dataclasses.field(default="house", kw_only=True)

    @property
    def title(self) -> str:
        """Its name, written large."""
        return self.name.upper()


place = frozen.maker(Place)


def test_what_is_made_equals_what_the_class_makes() -> None:
    made = place("a", size=4, kind="barn")
    assert made == Place("a", size=4, kind="barn")
    assert type(made) is Place
    assert repr(made) == repr(Place("a", size=4, kind="barn"))
    assert made.title == "A"
    assert dataclasses.replace(made, name="b") == Place("b", size=4, kind="barn")
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made


def test_defaults_are_the_class_s_and_no_two_share_a_table() -> None:
    first, second = place("a"), place("a")
    assert first == Place("a")
    assert first.marks is not second.marks


def test_fields_cannot_be_changed() -> None:
    made = place("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "b"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.name  # pyright: ignore[reportAttributeAccessIssue]
    assert hash(frozen.maker(Name)("a")) == hash(Name("a"))


def test_arguments_are_those_of_the_class() -> None:
    with pytest.raises(TypeError, match="name"):
        place()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="other"):
        place("a", other=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        place("a", {}, 3, "barn")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@dataclasses.dataclass(frozen=True, slots=True)
class Name:
    """One that can be hashed."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """Does more when it is made."""

    text: str

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("empty")


@dataclasses.dataclass(frozen=True, slots=True)
class Longer(Name):
    """Has a base class."""

    more: str


@dataclasses.dataclass(frozen=True)
class Open:
    """Has no slots."""

    text: str


@pytest.mark.parametrize("kind", [Checked, Longer, Open, str])
def test_other_classes_are_refused(kind: type) -> None:
    with pytest.raises(TypeError, match="not a plain dataclass with slots"):
        frozen.maker(kind)
