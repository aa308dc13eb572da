"""Actions: a verb's words, which a page shows before they are obeyed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import ImmutableMultiDict

from jobs.calling import call
from jobs.contracts.errors import Refused
from jobs.runs.store import RUN_ID
from jobs.ui.one_run import fetched_to, is_on
from jobs.ui.reading import Reading

# Options by which a form changes what is started by these verbs.
_STARTED = ("run", "rerun")
_CHANGES = ("cluster", "nodes", "priority", "set")
_CHANGED = tuple(f"--{name}=" for name in _CHANGES)
# Verbs that pages obey, each with the options that may stand among its words: none that names an
# environment or a place on this machine.
VERBS: Mapping[str, tuple[str, ...]] = {
    "run": _CHANGED,
    "rerun": ("--resume", *_CHANGED),
    "cancel": (),
    "fetch": (),
    "keep": (),
    "cluster pause": (),
    "cluster resume": (),
    "cluster resize": (),
}
# How a verb that starts something says what it would start: another verb, or an option.
_PLANNED = {"run": ("plan", ""), "rerun": ("rerun", "--dry-run")}
_ANSWERED = ("run", "rerun", "cluster resume")  # with --yes: the page has asked


@dataclass(frozen=True, kw_only=True)
class Action:
    """A button: what it says, the environment, and its command line's other words.

    A form sends the words and the environment's name apart: the words that name an environment to
    `launch` are the server's own.
    """

    label: str = ""
    place: str
    words: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A command line that pages may obey, in its parts."""

    verb: str
    options: Sequence[str]
    environment: Sequence[str]
    arguments: Sequence[str]

    def words(self, *more: str, verb: str = "") -> list[str]:
        """Give all words; `more` are options that a person does not type."""
        verbs = (verb or self.verb).split()
        return [*verbs, *more, *self.options, *self.environment, *self.arguments]


def of_run(run: Mapping[str, Any], place: str) -> list[Action]:
    """List what can be done with a run."""

    def action(label: str, *words: str) -> Action:
        return Action(label=label, place=place, words=[*words, run["id"]])

    if is_on(run):
        return [action("Cancel", "cancel"), action("Fetch", "fetch")]
    again = [action("Run again", "rerun")]
    if run["state"] != "completed" and run["checkpoints"]["newest"]:
        again.insert(0, action("Resume", "rerun", "--resume"))
    return [*again, action("Fetch", "fetch"), action("Keep", "keep")]


def of_cluster(cluster: Mapping[str, Any], place: str) -> list[Action]:
    """List what can be done with a cluster."""
    name = cluster["name"]
    return [
        Action(label="Pause", place=place, words=["cluster", "pause", name]),
        Action(label="Keep warm", place=place, words=["cluster", "resume", name]),
    ]


def asked_of(asked: ImmutableMultiDict[str, Any]) -> Action:
    """Give the action that a form asks for: `word` each, or the fields of the form that starts a job."""
    words = [str(each) for each in asked.getlist("word")]

    def field(name: str) -> str:
        return str(asked.get(name, "")).strip()

    if field("job"):
        words = ["run", field("job")]
    if words[:1] == ["cluster"] and field("nodes"):
        words = [*words, field("nodes")]
    elif words and words[0] in _STARTED:
        given = ((name, field(name).splitlines()) for name in _CHANGES)
        changes = [f"--{name}={each.strip()}" for name, lines in given for each in lines if each]
        words = [words[0], *changes, *words[1:]]
    return Action(place=field("place"), words=words)


def changes_of(action: Action) -> tuple[Action, Mapping[str, str]] | None:
    """Take an action apart for the form that changes it: the rest, and the changes by their name.

    None of what starts nothing.
    """
    if action.words[0] not in _STARTED:
        return None
    given: dict[str, list[str]] = {}
    rest: list[str] = []
    for word in action.words:
        name, _, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in _CHANGES:
            given.setdefault(name, []).append(value)
        else:
            rest.append(word)
    return Action(place=action.place, words=rest), {
        name: "\n".join(values) for name, values in given.items()
    }


def line_of(action: Action, reading: Reading) -> Line:
    """Check an action, and give its command line.

    Raises Refused for a verb or an option that no page has, NotFound for an environment that is not
    shown.
    """
    words = action.words
    verb = next((each for each in VERBS if list(words[: len(each.split())]) == each.split()), None)
    if verb is None:
        message = f"no page does `launch {' '.join(words[:2])}`"
        raise Refused(message, hint=f"type it in a terminal; pages do {', '.join(VERBS)}")
    rest = words[len(verb.split()) :]
    options = [each for each in rest if each.startswith("-")]
    for each in options:
        if not any(_is_option(each, known) for known in VERBS[verb]):
            message = f"no page does `launch {verb} {each}`"
            raise Refused(message, hint="type it in a terminal")
    arguments = [each for each in rest if not each.startswith("-")]
    if verb == "fetch":  # whose folder a person in a terminal sees without
        run = " ".join(arguments)
        if not RUN_ID.fullmatch(run):  # a folder here is named by it
            message = f"`{run:.80}` is no id of a run"
            raise Refused(message, hint="launch ls")
        options = [f"--into={fetched_to(run)}"]
    return Line(
        verb=verb,
        options=options,
        environment=reading.words_for(action.place),
        arguments=arguments,
    )


def _is_option(word: str, known: str) -> bool:
    return word.startswith(known) if known.endswith("=") else word == known


def plan_of(line: Line) -> Any:
    """Plan what would be started, in the words of `launch plan`; None of what starts nothing."""
    if line.verb not in _PLANNED:
        return None
    verb, option = _PLANNED[line.verb]
    return call(line.words(*([option] if option else []), "--json", verb=verb))


def do(line: Line) -> Any:
    """Obey; gives the value or the text that the verb prints."""
    more = ["--yes"] if line.verb in _ANSWERED else []
    more += ["--json", "--detach"] if line.verb in _STARTED else []
    return call(line.words(*more))
