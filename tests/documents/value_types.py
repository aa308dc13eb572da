"""Words the values of verbs as TypedDicts, from the structs that `--json` prints."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import fields

from jobs.contracts.spec import Environment, RankError, ResumePoint, RunRecord, RunStatus
from jobs.launching.compare import RunDiff
from jobs.launching.foresee import ForeseenPlan
from jobs.runs.checkpoints import Checkpoint
from jobs.runs.failure import RankReport
from jobs.runs.figures import Figure
from jobs.runs.outcome import AttemptBrief
from jobs.runs.outlook import Outlook
from jobs.runs.report import Figures
from jobs.runs.run_folder import RunEvent
from jobs.stacks.checks import Check
from jobs.stacks.cost import Spent

# Values that verbs put together of several structs: each the fields of one, and more.
JOINED: Mapping[str, tuple[type | None, Mapping[str, Any]]] = {
    "ListedRun": (RunStatus, {"progress": Outlook | None, "cost": Spent | None}),
    "Checkpoints": (
        None,
        {"count": int, "newest": Checkpoint | None, "all": list[Checkpoint]},
    ),
    "ShownRun": (
        RunStatus,
        {
            "error": RankError | None,
            "ranks": list[RankReport],
            "metrics": list[dict[str, Any]],
            "record": RunRecord,
            "events": list[RunEvent],
            "attempts": list[AttemptBrief],
            "checkpoints": "Checkpoints",
            "resumed_from": ResumePoint | None,
            "places": dict[str, str],
            "progress": Outlook | None,
            "cost": Spent | None,
        },
    ),
    "ReportedRun": (
        RunStatus,
        {
            "time_s": float | None,
            "figures": Figures,
            "metrics": list[Figure],
            "differs": dict[str, str] | None,
            "summary": dict[str, Any],
            "error": RankError | None,
            "forecast": dict[str, Any] | None,
        },
    ),
    "Report": (None, {"picture": str | None, "runs": ["ReportedRun"]}),
    "Stack": (None, {"stack": str, "up": bool | None}),
}
# Of a verb, or of a member of a group: its value.
VALUES: Mapping[str, Any] = {
    "ls": ["ListedRun"],
    "show": "ShownRun",
    "report": "Report",
    "plan": ForeseenPlan,
    "diff": RunDiff,
    "doctor": list[Check],
    "env ls": ["Stack"],
    "env show": Environment,
}


class Types:
    """The TypedDicts that were needed so far, each as its text, in the order of need."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def text(self) -> str:
        """Give all of them, those that others need first."""
        return "\n".join(self._known.values())

    def of(self, verb: str) -> str:
        """Word the type of a verb's value; Any where none is known."""
        return self._word(VALUES[verb]) if verb in VALUES else "Any"

    def _word(self, kind: Any) -> str:
        if isinstance(kind, str):
            return self._joined(kind)
        if isinstance(kind, list):
            return f"list[{self._word(kind[0])}]"
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return self._word(arguments[0])
        if origin is typing.Literal:
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if origin in (typing.Union, types.UnionType):
            told = [each for each in arguments if each is not msgspec.UnsetType]
            return " | ".join(dict.fromkeys(map(self._word, told)))
        if origin in (tuple, list, frozenset, set, Sequence):
            return f"list[{' | '.join(dict.fromkeys(self._word(each) for each in arguments if each is not ...))}]"
        if origin in (dict, Mapping):
            return f"dict[str, {self._word(arguments[1])}]"
        return self._plain(kind)

    def _plain(self, kind: Any) -> str:
        if kind is type(None):
            return "None"
        if kind in (str, int, float, bool):
            return str(kind.__name__)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return f"Literal[{', '.join(repr(each.value) for each in kind)}]"
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(kind)
        return "Any"

    def _struct(self, kind: type[msgspec.Struct]) -> str:
        name = f"_{kind.__name__.lstrip('_')}"
        if name not in self._known:
            self._known[name] = ""
            self._known[name] = self._define(name, self._fields(kind), str(kind.__doc__))
            self._known[name] = self._known.pop(name)
        return name

    def _joined(self, name: str) -> str:
        kind, more = JOINED[name]
        if f"_{name}" not in self._known:
            own = {} if kind is None else self._fields(kind)
            words = {**own, **{key: self._word(each) for key, each in more.items()}}
            self._known[f"_{name}"] = self._define(f"_{name}", words, "")
        return f"_{name}"

    def _fields(self, kind: Any) -> dict[str, str]:
        hints = typing.get_type_hints(kind, include_extras=True)
        may_lack = kind.__struct_config__.omit_defaults
        found: dict[str, str] = {}
        for each in fields(kind):
            word = self._word(hints[each.name])
            can_be_unset = msgspec.UnsetType in typing.get_args(hints[each.name])
            is_left_out = can_be_unset or (may_lack and not each.required)
            found[each.encode_name] = f"NotRequired[{word}]" if is_left_out else word
        return found

    def _define(self, name: str, words: Mapping[str, str], about: str) -> str:
        lines = [f"    {key}: {word}" for key, word in words.items()] or ["    pass"]
        first = about.partition("\n")[0]
        said = [f'    """{first}"""', ""] if first and first != "None" else []
        return "\n".join([f"class {name}(TypedDict):", *said, *lines]) + "\n"
