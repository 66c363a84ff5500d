"""Each setting of RocketMQ's proxy has an effect here or a reason why it has none."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from roquet.base.config import settings
from roquet.proxy.rules.java_keys import WITHOUT_EFFECT
from roquet.proxy.rules.limits import ProxyLimits

if TYPE_CHECKING:
    from pathlib import Path

CLASS = "org.apache.rocketmq.proxy.config.ProxyConfig"
_FIELD = re.compile(r"^  private (?!static|transient)[\w.]+ (\w+);$", re.MULTILINE)


def test_each_setting_of_the_proxy_has_its_fate(jars: Path) -> None:
    command = ["javap", "-p", "-cp", f"{jars}/*", CLASS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    keys = set(_FIELD.findall(done.stdout))
    assert len(keys) == 155
    ours = {about.java for _, about, _ in settings(ProxyLimits)}
    assert not ours & WITHOUT_EFFECT.keys()
    assert keys <= ours | WITHOUT_EFFECT.keys()
    assert WITHOUT_EFFECT.keys() <= keys
