"""What a member says of its threads and tasks."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from roquet.client._consuming import stacks

if TYPE_CHECKING:
    import pytest


async def _waiting_for_nothing(event: asyncio.Event) -> None:
    await event.wait()


def test_stacks_name_threads_and_tasks_without_values_or_source() -> None:
    secret = "canary-of-a-variable"  # a value of a frame that is shown

    async def story() -> str:
        event, blocked = asyncio.Event(), threading.Event()
        thread = threading.Thread(target=blocked.wait, name="blocked one", daemon=True)
        thread.start()
        task = asyncio.create_task(_waiting_for_nothing(event), name="quiet one")
        await asyncio.sleep(0)
        text = stacks.stacks()
        blocked.set()
        event.set()
        await task
        thread.join()
        return text

    text = asyncio.run(story())
    assert '"blocked one" thread=' in text
    assert '"quiet one" task\n    at _waiting_for_nothing(' in text
    assert secret not in text
    assert "event.wait()" not in text


def test_stacks_end_at_their_limit_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "SIZE_MAX", 2000)

    async def story() -> str:
        event = asyncio.Event()
        tasks = [asyncio.create_task(_waiting_for_nothing(event)) for _ in range(500)]
        await asyncio.sleep(0)
        text = stacks.stacks()
        event.set()
        await asyncio.gather(*tasks)
        return text

    text = asyncio.run(story())
    assert len(text) < 2100
    assert text.endswith("... the rest is left out")
