"""Actions: a verb's words, which a page shows before they are obeyed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams

from jobs.calling import call
from jobs.contracts.errors import LaunchError, Refused
from jobs.ui.one_run import fetched_to, is_on
from jobs.ui.reading import FILE, Reading

# What a page may do, and no other verb; of two words those of a group.
VERBS = (
    "run",
    "rerun",
    "cancel",
    "fetch",
    "keep",
    "cluster pause",
    "cluster resume",
    "cluster resize",
)
# Those that print a value.
_WITH_VALUE = ("run", "rerun")
_STARTED = ("run", "rerun")
# Options by which a form changes what is started, of a job and of a run.
_CHANGES = ("cluster", "nodes", "priority")
_ANSWERED = ("run", "rerun", "cluster resume")  # with --yes: the page has asked


@dataclass(frozen=True, kw_only=True)
class Action:
    """A button: what it says, and the words of its command line."""

    label: str
    words: Sequence[str]


def of_run(run: Mapping[str, Any], environment: Sequence[str]) -> list[Action]:
    """List what can be done with a run."""
    name = run["id"]
    fetched = Action(
        label="Fetch", words=["fetch", f"--into={fetched_to(name)}", *environment, name]
    )
    if is_on(run):
        return [Action(label="Cancel", words=["cancel", *environment, name]), fetched]
    again = [Action(label="Run again", words=["rerun", *environment, name])]
    if run["state"] != "completed" and run["checkpoints"]["newest"]:
        again.insert(0, Action(label="Resume", words=["rerun", "--resume", *environment, name]))
    return [*again, fetched, Action(label="Keep", words=["keep", *environment, name])]


def of_cluster(cluster: Mapping[str, Any], environment: Sequence[str]) -> list[Action]:
    """List what can be done with a cluster."""
    name = cluster["name"]
    return [
        Action(label="Pause", words=["cluster", "pause", *environment, name]),
        Action(label="Keep warm", words=["cluster", "resume", *environment, name]),
    ]


def words_of(asked: QueryParams, reading: Reading) -> list[str]:
    """Give the words of an action: `word` each, or those of the form that starts a job.

    Raises Refused for a verb that no page has.
    """
    words = asked.getlist("word")
    if asked.get("job", "").strip():
        words = ["run", *reading.words_for(asked.get("place", "")), "--", asked["job"].strip()]
    if words[:1] == ["cluster"] and asked.get("nodes", "").strip():
        words = [*words, asked["nodes"].strip()]
    elif words[:1] in [[each] for each in _STARTED]:
        words = [words[0], *_changes_of(asked), *words[1:]]
    return list(_allowed(words))


def _changes_of(asked: QueryParams) -> list[str]:
    """Give the options of a form that changes what is started: a line of `set` each."""
    given = {name: asked.get(name, "").strip() for name in _CHANGES}
    lines = [line.strip() for line in asked.get("set", "").splitlines()]
    return [f"--{name}={value}" for name, value in given.items() if value] + [
        f"--set={line}" for line in lines if line
    ]


@dataclass(frozen=True, kw_only=True)
class Changing:
    """The form that changes what is started: the words without the changes, and the changes by name."""

    words: Sequence[str]
    given: Mapping[str, str]


def changing(words: Sequence[str]) -> Changing | None:
    """Take words of a start apart for its form; None of what starts nothing."""
    if words[0] not in _STARTED:
        return None
    end = words.index("--") if "--" in words else len(words)
    given: dict[str, list[str]] = {}
    kept: list[str] = []
    for word in words[:end]:
        name, _, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in (*_CHANGES, "set"):
            given.setdefault(name, []).append(value)
        else:
            kept.append(word)
    told = {name: "\n".join(values) for name, values in given.items()}
    return Changing(words=[*kept, *words[end:]], given=told)


def plan_of(words: Sequence[str]) -> Any:
    """Plan what would be started, in the words of `launch plan`; None of what starts nothing."""
    if words[0] not in _STARTED:
        return None
    if words[0] == "run":
        return call(["plan", "--json", *words[1:]])
    return call([words[0], "--dry-run", "--json", *words[1:]])


def do(words: Sequence[str], reading: Reading) -> Any:
    """Obey; gives the value or the text that the verb prints."""
    words = _allowed(words)
    reading.words_for(place_of(words))
    verb = _verb(words)
    size = len(verb.split())
    more = ["--yes"] if verb in _ANSWERED else []
    more += ["--json", "--detach"] if verb in _WITH_VALUE else []
    return call([*words[:size], *more, *words[size:]])


def place_of(words: Sequence[str]) -> str:
    """Tell the environment that the words name."""
    for word in words:
        if word.startswith("--stack="):
            return word.removeprefix("--stack=")
        if word.startswith("--env="):
            return FILE
    message = "the words name no environment"
    raise LaunchError(message, hint="--stack=NAME")


def _verb(words: Sequence[str]) -> str:
    return next((each for each in VERBS if list(words[: len(each.split())]) == each.split()), "")


def _allowed(words: Sequence[str]) -> Sequence[str]:
    if not _verb(words):
        message = f"no page does `launch {' '.join(words[:2])}`"
        raise Refused(message, hint=f"type it in a terminal; pages do {', '.join(VERBS)}")
    return words
