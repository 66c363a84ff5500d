"""What the page of the remoting port says is what there is."""

from __future__ import annotations

from page_tables import section
from roquet.base.config import settings
from roquet.proxy.remoting.limits import RemotingLimits


def test_guide_has_each_setting_of_the_remoting_port_with_its_default() -> None:
    rules = RemotingLimits()
    wanted: dict[str, str] = {}
    for path, about, _ in settings(RemotingLimits):
        value = getattr(rules, path[0])
        text = f"{value:,}" if isinstance(value, int) else str(value) or "none"
        text = str(value).lower() if isinstance(value, bool) else text
        wanted[about.java] = f"{text} {about.unit}".strip()
    assert section("guide/remoting-proxy.md", "Settings") == wanted
    assert len(wanted) > 10
