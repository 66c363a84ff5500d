"""Which checkpoints a folder of `dedup` or `sessionize` may be filled on from."""

from __future__ import annotations

import pytest

from roquet.spark.jobs.sessions.written import wrong


@pytest.mark.parametrize(
    ("parts", "last", "query", "known"),
    [
        ((), -1, "", None),  # nothing was written yet
        ((), -1, "", "of before"),  # the folder was emptied, and the checkpoint with it
        ((), 4, "q", None),  # a folder that is new, for a checkpoint that is not
        ((0,), -1, "q", "q"),  # killed in the first micro-batch
        ((0, 1, 2), 1, "q", "q"),  # killed in a later one
        ((0, 1), 1, "q", "q"),
        ((1,), 1, "q", "q"),  # an operator has moved what is done
        ((0, 1), 1, "q", None),  # of an earlier release
    ],
)
def test_folder_is_filled_on_from_its_own_checkpoint(
    parts: tuple[int, ...], last: int, query: str, known: str | None
) -> None:
    assert wrong("OUT", "CHECK", set(parts), last=last, query=query, known=known) is None


@pytest.mark.parametrize(
    ("parts", "last", "query", "known", "why"),
    [
        ((0, 1), -1, "", "q", "not the checkpoint that OUT was filled with"),
        ((0, 1), -1, "", None, "OUT has 2 micro-batches, and CHECK knows of none"),
        ((0, 1), 1, "another", "q", "not the checkpoint that OUT was filled with"),
        ((0, 1, 2, 3), 1, "q", "q", "up to 1, and OUT has them up to 3: it is an older copy"),
        ((0, 1), -1, "q", None, "an older copy"),
        # Nobody knows whose it is, and it would be written over.
        (
            (0,),
            -1,
            "q",
            None,
            "which CHECK has not done, and no _query.json",
        ),
        ((0, 1, 2), 1, "q", None, "move OUT/batch=2 away, and it is made again"),
    ],
)
def test_another_or_an_older_checkpoint_is_refused_with_what_to_do(
    parts: tuple[int, ...], last: int, query: str, known: str | None, why: str
) -> None:
    text = wrong("OUT", "CHECK", set(parts), last=last, query=query, known=known)
    assert text is not None
    assert why in text
    assert text.endswith("or, to begin anew, another folder, or remove OUT and CHECK")
