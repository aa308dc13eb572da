"""Fills drafts from task files of other tools: what their readers share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

from jobs.launching.imports.batchai_image import choose_image
from jobs.launching.imports.draft import (
    MOST_NODES,
    MOST_PROCESSES,
    RESERVED_NAMES,
    Draft,
    Project,
    job_name,
    unique,
    variable_problem,
)
from jobs.launching.imports.leaves import Leaves, Place
from jobs.launching.imports.secrecy import is_secret, vault_command
from jobs.launching.imports.shell_text import literal, objection

NODES_OF_STACK = "a stack's clusters have sizes of their own: set them in Pulumi.<stack>.yaml, and choose one by --cluster"
UNUSED = "the job does not use it"
_SET_IT = "set it in `env`, or in `secrets`"


class TaskDraft:
    """The draft of one task file, filled key by key."""

    def __init__(self, leaves: Leaves, name: str, path: Path, project: Project) -> None:
        self.project, self.top = project, leaves.top
        self.folder = path.resolve().parent
        self.draft = Draft(name=name, file=leaves.file)

    def name(self, place: Place | None) -> None:
        """Take the job's name."""
        if place is None:
            return
        text = self.text_of(place)
        if self.project.vault.holds(text):
            place.refused("it looks like a secret: set `name`")
            return
        taken = [*RESERVED_NAMES, *(each.name for each in self.project.drafts)]
        self.draft.name = unique(job_name(text), taken)
        place.converted("name")

    def text_of(self, place: Place) -> str:
        """Give a scalar as it was written; raises LaunchError for a list or a mapping."""
        if isinstance(place.value, list | dict):
            place.fail("a text")
        return place.node.text if place.node.text is not None else str(place.value)

    def texts(self, place: Place | None) -> list[tuple[str, Place]]:
        """Give the texts of a list, or the one text that stands in its place."""
        if place is None:
            return []
        places = place.items() if isinstance(place.value, list) else [place]
        texts = [self.text_of(each) for each in places]
        # An option and its value may be two words of a list.
        for option, value in pairwise(texts):
            if option.startswith("-"):
                self.project.vault.learn_from("", f"{option} {shlex.quote(value)}")
        return list(zip(texts, places, strict=True))

    def command(self, place: Place | None, became: str, hint: str = "ARGUMENT_SECRET") -> str:
        """Take text that a shell runs; secrets in it become variables. Empty where nothing can run."""
        lines: list[str] = []
        for text, each in self.texts(place):
            if problem := objection(text):
                each.refused(f"{problem}: correct it, and add it to the job's `{became}`")
                continue
            each.converted(became)
            lines.append(self.safe(text.strip(), each, hint))
        return "\n".join(each for each in lines if each)

    def safe(
        self,
        text: str,
        place: Place,
        hint: str = "ARGUMENT_SECRET",
        fill: Callable[[str], str] = str,
    ) -> str:
        """Put variables in place of secrets, then values in place of macros, and leave no placeholder."""
        text, names = self.draft.without_secrets(text, self.project.vault, hint)
        if names:
            place.converted(f"its text, with secrets: {', '.join(names)}")
        return literal(fill(text))

    def setup(self, place: Place | None) -> None:
        """Take what runs once on each node before the ranks."""
        if text := self.command(place, "setup", "PREPARATION_SECRET"):
            self.draft.setup.append(f"{text}\n")

    def variables(self, place: Place | None, *, are_secret: bool = False) -> None:
        """Take variables, a mapping or a list of NAME=VALUE: `env`, or `secrets` where a value is one."""
        if place is None:
            return
        if isinstance(place.value, dict):
            for name in place.value:
                if each := place.get(name):
                    self._variable(each, name, self.text_of(each), are_secret)
                elif (
                    are_secret
                    and name not in self.draft.env
                    and not variable_problem(name, self.project.vault)
                ):
                    self.draft.add_secret(name, "", self.project.vault)
                else:
                    key = self.project.vault.mask(f"{place.key}.{name}")
                    remark = f"{self.draft.file}: `{key}` has no value in the file: {_SET_IT}"
                    self.project.remarks.append(remark)
            return
        for text, each in self.texts(place):
            name, equals, value = text.partition("=")
            if equals:
                self._variable(each, name, value, are_secret)
            else:
                each.refused(f"its value is not in the file: {_SET_IT}")

    def _variable(self, place: Place, name: str, value: str, are_secret: bool) -> None:
        if problem := variable_problem(name, self.project.vault):
            place.refused(problem)
        elif objection(value.replace("'", "").replace('"', "")):
            place.refused("it holds a NUL or half of a character")
        elif are_secret or is_secret(name, value) or self.project.vault.holds(value):
            self.project.vault.learn(value)
            secret = self.draft.add_secret(name, value, self.project.vault)
            place.converted(
                f"secrets.{name}; put its value into the vault: {vault_command(secret)}"
            )
        else:
            self.draft.env[name] = literal(value)
            place.converted(f"env.{name}")

    def nodes(self, *names: str, of: Place | None = None) -> None:
        """Take the number of nodes."""
        told = (of or self.top).take_number(*names)
        if told and 1 <= told[0] <= MOST_NODES:
            self.draft.nodes = told[0]
            told[1].converted("nodes")
        elif told:
            told[1].refused(
                f"a job has 1 to {MOST_NODES} nodes: the job file has 1; correct it there"
            )

    def processes(self, told: tuple[int, Place] | None, *, is_total: bool = False) -> None:
        """Take the number of processes of a node, or of the job."""
        if told is None:
            return
        per_node, rest = divmod(told[0], self.draft.nodes) if is_total else (told[0], 0)
        if 1 <= per_node <= MOST_PROCESSES and not rest:
            self.draft.processes_per_node = per_node
            told[1].converted("processes_per_node")
        else:
            told[1].refused(
                f"it gives no node 1 to {MOST_PROCESSES} whole processes: the job has 1 a node; "
                "set `processes_per_node`"
            )

    def image(self, place: Place | None) -> None:
        """Take the container's image."""
        if place is None:
            return
        reference = self.text_of(place).removeprefix("docker:").removeprefix("//")
        became, reason = choose_image(reference, self.draft, self.project)
        place.refused(reason) if reason else place.converted(became)

    def wall_clock(self, place: Place | None, seconds: float | None) -> None:
        """Take the longest time of a run."""
        if place is None:
            return
        if seconds is None or not 0 < seconds <= 10 * 365 * 86400:
            place.refused("it is no length of time up to ten years: set `limits: {wall_clock: 7d}`")
            return
        self.draft.wall_clock_s = float(seconds)
        place.converted("limits.wall_clock")

    def code(self, place: Place | None, default: Path | None = None) -> None:
        """Take the folder of the program: that of --code, the one that the file names, or the default."""
        chosen = self.project.choices.code
        named = self.folder / self.text_of(place) if place else None
        self.draft.code = chosen or (named if named and named.is_dir() else default)
        if place is None:
            return
        if chosen or (named and named.is_dir()):
            place.converted("code")
        else:
            place.refused(
                "the folder is not here: give the folder that has the program by --code DIR"
            )

    def tags(self, place: Place | None) -> None:
        """Take words of the user's own."""
        if place is None or not isinstance(place.value, dict):
            return
        for each in place.members():
            name, text = each.key.removeprefix(f"{place.key}."), self.text_of(each)
            if (
                self.project.vault.is_secret(name, text)
                or not name.replace("_", "a").replace("-", "a").isalnum()
            ):
                each.refused(
                    "a tag's name has letters, digits, `_` and `-`, and no tag holds a secret"
                )
            else:
                self.draft.tags[name] = text
                each.converted(f"tags.{name}")

    def refuse(self, reasons: Mapping[str, str], of: Place | None = None) -> None:
        """Refuse keys that have no equal, each with what takes its place."""
        for name, reason in reasons.items():
            if place := (of or self.top).get(name):
                place.refuse_rest(reason)

    def finish(self, text: str) -> bool:
        """Add the draft to the project; False where it has nothing to run."""
        if not text:
            self.top.refuse_rest("the task has no command that can be run here")
            return False
        self.draft.text = f"{text}\n"
        self.project.drafts.append(self.draft)
        return True
