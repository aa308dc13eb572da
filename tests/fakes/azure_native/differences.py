"""Decides what a change of inputs means, as we read that the azure-native provider does.

Nothing judges this reading: the provider itself runs nowhere here. Its rules
(pulumi/pulumi-azure-native, provider/pkg/provider/diff.go): inputs are compared with inputs; what is
part of the resource's path and what its table calls create-only replaces it, and a replacement deletes
first, since the name is the same. Since version 3 that holds for what is inside of a property, too
(its upgrade guide, issue 3006). What a program no longer says replaces nothing (pull requests 4785 and
4789, of August 2026; 3.29.0 is younger), nor what it says now and Azure has told already. `location`
is compared without case and spaces.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

Change = Literal["add", "delete", "update"]
INDEX = re.compile(r"\[\d+\]")


def find_changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Change]:
    """Path of each difference -> its kind, the deepest paths that differ."""
    found = dict(_objects(old, new, ""))
    same = _region(old.get("location")) == _region(new.get("location"))
    if same and found.get("location") == "update":
        del found["location"]
    return found


def find_replacing(
    changes: Mapping[str, Change],
    create_only: Collection[str],
    new: Mapping[str, Any],
    seen: Mapping[str, Any],
) -> list[str]:
    """The changed paths that the service would not take in place; `seen` is what Azure has told."""
    return sorted(
        path
        for path, change in changes.items()
        if change != "delete"
        and not (change == "add" and path in seen and seen[path] == new[path])
        and _replaces(INDEX.sub("[]", path), create_only)
    )


def _replaces(path: str, create_only: Collection[str]) -> bool:
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in create_only)


def _region(value: Any) -> Any:
    return value.replace(" ", "").lower() if isinstance(value, str) else value


def _objects(old: dict[str, Any], new: dict[str, Any], base: str) -> list[tuple[str, Change]]:
    found: list[tuple[str, Change]] = []
    for key in sorted(old.keys() | new.keys()):
        path = f"{base}{key}"
        if key not in new:
            found.append((path, "delete"))
        elif key not in old:
            found.append((path, "add"))
        else:
            found += _values(old[key], new[key], path)
    return found


def _values(old: Any, new: Any, path: str) -> list[tuple[str, Change]]:
    if isinstance(old, dict) and isinstance(new, dict):
        return _objects(old, new, f"{path}.")
    if isinstance(old, list) and isinstance(new, list):
        return _lists(old, new, path)
    return [] if old == new and type(old) is type(new) else [(path, "update")]


def _lists(old: list[Any], new: list[Any], path: str) -> list[tuple[str, Change]]:
    found: list[tuple[str, Change]] = []
    for index in range(max(len(old), len(new))):
        place = f"{path}[{index}]"
        if index >= len(new):
            found.append((place, "delete"))
        elif index >= len(old):
            found.append((place, "add"))
        else:
            found += _values(old[index], new[index], place)
    return found


def follow(inputs: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The inputs after a refresh: what moved between two readings is moved in them, no more."""
    moved = {key: each for key, each in inputs.items() if key in new or key not in old}
    for key, value in new.items():
        if key in old and old[key] == value:
            continue
        moved[key] = _follow_value(inputs.get(key), old.get(key), value)
    return moved


def _follow_value(base: Any, old: Any, new: Any) -> Any:
    if isinstance(base, dict) and isinstance(old, dict) and isinstance(new, dict):
        return follow(base, old, new)
    if isinstance(base, list) and isinstance(old, list) and isinstance(new, list):
        known = min(len(base), len(old))
        followed = [_follow_value(base[i], old[i], new[i]) for i in range(min(known, len(new)))]
        return followed + new[known:]
    return new
