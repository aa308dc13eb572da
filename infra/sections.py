"""Reads a stack's configuration: values by type, every wrong key noted with its path."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

PROJECT = "trainyard"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


class SettingsError(Exception):
    """Problems of the settings, one line each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        count = "1 wrong setting" if len(problems) == 1 else f"{len(problems)} wrong settings"
        super().__init__("\n  ".join([f"{count}, nothing was changed", *problems]))


@dataclass
class Section:
    """One mapping of the configuration: gives values by type, notes what is wrong."""

    path: str
    values: Any
    problems: list[str]
    known: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        if not isinstance(self.values, dict):
            self.refuse("", f"{json.dumps(self.values)} is not a mapping")
            self.values = None

    @property
    def mapping(self) -> dict[str, Any] | None:
        """The values; None without any."""
        return cast("dict[str, Any] | None", self.values)

    def refuse(self, key: str, reason: str) -> None:
        """Note one problem."""
        self.problems.append(f"{(self.path + key).rstrip('.:')}: {reason}")

    def has(self, key: str) -> bool:
        """Tell whether an optional key is there; marks it as known."""
        self.known.add(key)
        return (self.mapping or {}).get(key) is not None

    def names(self) -> list[str]:
        """List all keys, for a mapping whose keys are names."""
        names = list(self.mapping or ())
        for name in names:
            if not NAME.fullmatch(name):
                self.refuse(name, "is not a valid name (small letters, digits, dashes; 32 at most)")
        return names

    def take_section(self, key: str) -> Section:
        """Take the mapping under a key."""
        value = self._take(key)
        if value is None:
            # Noted once, above; nothing to judge inside.
            section = Section(f"{self.path}{key}.", {}, [])
            section.values = None
            return section
        return Section(f"{self.path}{key}.", value, self.problems)

    def take_number(self, key: str, low: int, high: int) -> int:
        """Take a whole number within bounds."""
        value = self._take(key)
        if value is None:
            return low
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(key, f"{json.dumps(value)} is not a whole number")
        elif not low <= value <= high:
            self.refuse(key, f"{value} is not between {low} and {high}")
        else:
            return value
        return low

    def take_folder(self, key: str, root: Path) -> Path:
        """Take a folder that can be created or written to; absolute, from `root`."""
        value = self._take(key)
        fallback = root / ".unset" / f"{self.path}{key}"
        if value is None:
            return fallback
        if not isinstance(value, str) or not value:
            self.refuse(key, f"{json.dumps(value)} is not a folder")
            return fallback
        folder = Path(os.path.normpath(root / Path(value).expanduser()))
        if reason := _why_not_writable(folder):
            self.refuse(key, reason)
        return folder

    def take_choice(self, key: str, choices: tuple[str, ...]) -> str:
        """Take one of a few words."""
        value = self._take(key)
        if value in choices:
            return value
        if value is not None:
            self.refuse(key, f"{json.dumps(value)} is not one of: {', '.join(choices)}")
        return choices[0]

    def take_text(self, key: str, pattern: re.Pattern[str], wanted: str) -> str:
        """Take a text that matches a pattern; `wanted` describes it."""
        value = self._take(key)
        if value is None:
            return ""
        if not isinstance(value, str) or not pattern.fullmatch(value):
            self.refuse(key, f"{json.dumps(value)} is not a valid {wanted}")
            return ""
        return value

    def take_list(self, key: str, pattern: re.Pattern[str], wanted: str) -> tuple[str, ...]:
        """Take texts that match a pattern, without duplicates in any case; none when absent."""
        self.known.add(key)
        values = (self.mapping or {}).get(key)
        if values is None:
            return ()
        if not isinstance(values, list):
            self.refuse(key, f"{json.dumps(values)} is not a list")
            return ()
        texts: list[str] = []
        for index, value in enumerate(cast("list[Any]", values)):
            if not isinstance(value, str) or not pattern.fullmatch(value):
                self.refuse(f"{key}[{index}]", f"{json.dumps(value)} is not a valid {wanted}")
            elif value.lower() in {text.lower() for text in texts}:
                self.refuse(f"{key}[{index}]", f"{json.dumps(value)} is there twice")
            else:
                texts.append(value)
        return tuple(texts)

    def take_texts(self, key: str) -> dict[str, str]:
        """Take a mapping of texts; empty when absent."""
        self.known.add(key)
        value = (self.mapping or {}).get(key, {})
        section = Section(f"{self.path}{key}.", value, self.problems)
        texts: dict[str, str] = {}
        for name, text in (section.mapping or {}).items():
            if isinstance(text, str) and text:
                texts[name] = text
            else:
                section.refuse(name, f"{json.dumps(text)} is not text")
        return texts

    def close(self) -> None:
        """Refuse every key that nobody took, naming the nearest known one."""
        for key in self.mapping or ():
            if key not in self.known:
                near = difflib.get_close_matches(key, self.known, n=1)
                known = ", ".join(sorted(self.known))
                hint = f"did you mean `{near[0]}`?" if near else f"known: {known}"
                self.refuse(key, f"unknown key, {hint}")

    def _take(self, key: str) -> Any:
        self.known.add(key)
        if self.mapping is None:
            return None
        if self.mapping.get(key) is None:
            self.refuse(key, "is missing")
        return self.mapping.get(key)


def open_sections(config: Mapping[str, str], problems: list[str]) -> Section:
    """Select our part of a configuration that Pulumi hands over (`trainyard:key` -> value).

    Objects come as JSON; keys of other namespaces are not ours to judge.
    """
    ours = {
        key.partition(":")[2]: _decode(value)
        for key, value in config.items()
        if key.startswith(f"{PROJECT}:")
    }
    return Section(f"{PROJECT}:", ours, problems)


def _decode(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _why_not_writable(folder: Path) -> str | None:
    nearest = folder
    # os.path: pathlib's exists() raises on a folder that may not be looked into.
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not os.path.isdir(nearest):  # noqa: PTH112
        return f"{nearest} is in the way, it is not a folder"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"no permission to write in {nearest}"
    return None
