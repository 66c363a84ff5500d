# pyarrow ships no types; we touch it in few places and test those against the real thing.
from typing import Any

def __getattr__(name: str) -> Any: ...
