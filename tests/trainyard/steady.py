"""Takes out of a verb's value what differs from one look to the next."""

from __future__ import annotations

from typing import Any

AGES = frozenset({"age_s"})


def steady(value: Any, changing: frozenset[str] = AGES) -> Any:
    """Give the value without the keys that are `changing`, at any depth."""
    if isinstance(value, dict):
        kept = value.keys() - changing
        return {name: steady(each, changing) for name, each in value.items() if name in kept}
    return [steady(each, changing) for each in value] if isinstance(value, list) else value
