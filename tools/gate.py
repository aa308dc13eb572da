"""Holds `up` of a cloud stack to the policy pack, before anything is made.

`.venv/bin/pulumi` asks before it starts what may be an `up`, with its folder, the stack that its
options name, and all of its arguments:

    python -P -m tools.gate FOLDER STACK ARGUMENT...
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from jobs.contracts.errors import EnvironmentFailure, ExitCode, LaunchError, Refused
from jobs.host import console
from jobs.host.cache import cache_root
from tools.project import Project

SKIP = "TRAINYARD_SKIP_POLICY"
DEPLOYS = {"up", "update", "watch"}
# Options in front of the verb that take no value; Pulumi takes each other one with its next word.
SWITCHES = {
    *("-e", "-h", "-Q", "--emoji", "--fully-qualify-stack-names", "--help", "--logflow"),
    *("--disable-integrity-checking", "--logtostderr", "--non-interactive"),
}
# Those of `up` that may stand before another in one word.
LETTERS = "defhjryQ"


@dataclass(frozen=True, kw_only=True)
class Up:
    """Folder, stack and options of one `up`."""

    folder: Path
    stack: str
    sets_config: bool


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Judge the stack if this is an `up` of a cloud stack; 0 lets Pulumi go on."""
    root, stack, *arguments = argv
    project = Project(root=Path(root).resolve(), cache=cache_root(environ))
    if verb_of(arguments) not in DEPLOYS or {"-h", "--help"} & set(arguments):
        return ExitCode.SUCCEEDED
    up = read_up(stack, arguments, environ)
    if find_root(up.folder) != project.root:
        return ExitCode.SUCCEEDED  # not ours to judge
    try:
        stack = up.stack or find_selected(project, up.folder)
        if read_engine(project.root / f"Pulumi.{stack}.yaml") == "local":
            return ExitCode.SUCCEEDED
        if environ.get(SKIP) == stack:
            console.say(f"policy: {stack} is not judged, {SKIP} names it")
            return ExitCode.SUCCEEDED
        if up.sets_config:
            message = f"`up` of {stack} with --config or --config-file: the policy reads the file"
            raise Refused(message, hint=f"pulumi config set -s {stack} ..., then `up`")
    except LaunchError as error:
        console.report_error(error)
        return error.exit_code
    return judge(project, stack)


def judge(project: Project, stack: str) -> int:
    from tests.environments import policy

    code = policy.main([stack], project=project)
    if code == ExitCode.REFUSED:
        console.say(f"hint: mend Pulumi.{stack}.yaml; {SKIP}={stack} goes on all the same")
    return code


def verb_of(arguments: Sequence[str]) -> str:
    """Find the first word that is no option and no option's value, as Pulumi's parser does."""
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            return word
        if word == "--":
            break
        if word not in SWITCHES and "=" not in word and (word.startswith("--") or len(word) == 2):
            next(words, None)
    return ""


def read_up(stack: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Up:
    """Read folder, stack and settings of an `up`; Pulumi takes every option from a variable, too."""
    folders = [environ.get("PULUMI_OPTION_CWD", "."), *values_of("cwd", "C", arguments)]
    variables = ("PULUMI_OPTION_CONFIG", "PULUMI_OPTION_CONFIG_FILE")
    sets_config = (
        any(environ.get(each) for each in variables)
        or values_of("config", "c", arguments)
        or values_of("config-file", "", arguments)
    )
    return Up(
        folder=Path(folders[-1]),
        # The wrapper's "?": none is named, and the caller's backend knows which is selected.
        stack=stack.rpartition("/")[2].strip("?"),
        sets_config=bool(sets_config),
    )


def values_of(name: str, letter: str, arguments: Sequence[str]) -> list[str]:
    """Collect an option's values in every notation: `--name V`, `--name=V`, `-yl V`, `-lV`."""
    short = rf"|-[{LETTERS}]*{letter}=?(?P<short>.*)" if letter else ""
    written = re.compile(rf"--{name}(=(?P<long>.*))?{short}", re.DOTALL)
    return [
        "".join(filter(None, found.groupdict().values())) or after
        for word, after in zip(arguments, [*arguments[1:], ""], strict=True)
        if (found := written.fullmatch(word))
    ]


def find_root(folder: Path) -> Path | None:
    """Find the project that Pulumi takes from a folder."""
    here = folder.resolve()
    return next((each for each in (here, *here.parents) if (each / "Pulumi.yaml").exists()), None)


def find_selected(project: Project, folder: Path) -> str:
    """Find the stack that Pulumi takes if none is named. Raises Refused if it asks."""
    asked = subprocess.run(
        [project.venv / "bin" / "pulumi", "stack", "--show-name", "--non-interactive"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if asked.returncode != 0:
        message = f"`up` of which stack? {asked.stderr.strip()}"
        raise Refused(message, hint="name it: `pulumi up -s STACK`")
    return asked.stdout.strip()


def read_engine(settings: Path) -> str:
    """Read the engine that a stack's settings name; '' without settings."""
    import yaml

    if not settings.is_file():
        return ""
    try:
        content = yaml.safe_load(settings.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        message = f"{settings.name} is not valid YAML: {error}"
        raise EnvironmentFailure(message, hint="mend it") from error
    config = cast("dict[str, Any]", content).get("config") if isinstance(content, dict) else None
    return str(cast("dict[str, Any]", config or {}).get("trainyard:engine", ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
