"""What the shell offers after Tab: jobs, runs, stacks, datasets. Quick, and never an error."""

from __future__ import annotations

import os
from argparse import Action, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.contracts.errors import LaunchError

if TYPE_CHECKING:
    from jobs.commands.parser import CommandParser
    from jobs.contracts.spec import DatasetVersion, Environment

# What can be typed, and a word about each.
Choices = dict[str, str]
# By the beginning of the word, and by what was typed before.
Completer = Callable[[str, Namespace], Choices]

NUM_RUNS = 30
LONGEST_S = 2


def offer(action: Action, completer: Completer) -> None:
    """Let the shell offer the completer's choices for an argument."""

    def choices(prefix: str, parsed_args: Namespace, **_: object) -> Mapping[str, str]:
        try:
            return completer(prefix, parsed_args)
        except Exception:  # noqa: BLE001 - a half-typed line is no place for an error
            return {}

    # Where argcomplete looks for it.
    action.completer = choices  # pyright: ignore[reportAttributeAccessIssue]


def answer(parser: CommandParser) -> None:
    """Write the choices for the line that argcomplete's shell function hands on; ends the process.

    Options are offered once a `-` is typed, and files only where a file belongs.
    """
    import signal

    from argcomplete import autocomplete
    from argcomplete.completers import SuppressCompleter

    if hasattr(signal, "SIGALRM"):  # a store that hangs is not waited for
        signal.signal(signal.SIGALRM, _end)
        signal.alarm(LONGEST_S)
    autocomplete(parser, always_complete_options=False, default_completer=SuppressCompleter())


def _end(_number: int, _frame: object) -> None:
    os._exit(0)


def jobs(incomplete: str, typed: Namespace) -> Choices:
    """The catalog's names, and the job files of the folder that is being typed."""
    del typed
    return _catalog_jobs(incomplete) | _paths(incomplete, _is_job_file)


def runs(incomplete: str, typed: Namespace) -> Choices:
    """Run ids, newest first, with their state and name, and `last`."""
    from jobs.engines import load_store

    return _beginning(incomplete, dict(load_store(_environment(typed)).known(NUM_RUNS)))


def stacks(incomplete: str, typed: Namespace) -> Choices:
    """The stacks that have a file of settings."""
    from jobs.host.project import project_root

    del typed
    files = sorted(project_root().glob("Pulumi.*.yaml"))
    names = [file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in files]
    return _beginning(incomplete, dict.fromkeys(names, ""))


def datasets(incomplete: str, typed: Namespace) -> Choices:
    """The datasets of the stack, where they can be named without waiting."""
    found = _datasets(typed)
    return _beginning(incomplete, {each.name: f"version {each.version}" for each in found})


def dataset_versions(incomplete: str, typed: Namespace) -> Choices:
    """Datasets with each of their versions, once a name is there the versions alone."""
    from jobs.host.console import size_text

    found = _datasets(typed)
    versions = {
        f"{each.name}@{each.version}": f"{each.files} files, {size_text(each.bytes)}"
        for each in found
    }
    names = {each.name: f"version {each.version}" for each in reversed(found)}
    return _beginning(incomplete, names | versions)


def clusters(incomplete: str, typed: Namespace) -> Choices:
    """The clusters of the stack with their sizes."""
    from jobs.host.console import count_text

    found = _environment(typed).clusters
    choices = {
        name: f"{each.size}, up to {count_text(each.max_nodes, 'node')}"
        for name, each in found.items()
    }
    return _beginning(incomplete, choices)


def images(incomplete: str, typed: Namespace) -> Choices:
    """The images that can be built here."""
    from jobs.host.project import sources_folder
    from jobs.images.runtimes import list_images

    del typed
    return _beginning(incomplete, dict.fromkeys(list_images(sources_folder()), ""))


def job_keys(incomplete: str, typed: Namespace) -> Choices:
    """The keys of a job file, as `--set` takes them."""
    from msgspec.structs import fields

    from jobs.contracts.spec import JobFile

    del typed
    return _beginning(incomplete, {f"{field.name}=": "" for field in fields(JobFile)})


def priorities(incomplete: str, typed: Namespace) -> Choices:
    """The words for a priority."""
    del typed
    return _beginning(incomplete, dict.fromkeys(("low", "normal", "high"), ""))


def files(incomplete: str, typed: Namespace) -> Choices:
    """The files and folders of the folder that is being typed."""
    del typed
    return _paths(incomplete, lambda _: True)


def _beginning(incomplete: str, choices: Choices) -> Choices:
    return {name: text for name, text in choices.items() if name.startswith(incomplete)}


def _catalog_jobs(incomplete: str) -> Choices:
    from jobs.jobfile.read import catalog_names

    return _beginning(incomplete, dict.fromkeys(catalog_names(), "from the catalog"))


def _paths(incomplete: str, is_wanted: Callable[[str], bool]) -> Choices:
    """The wanted files, then the folders, which go on."""
    folder, beginning = os.path.split(incomplete)
    with os.scandir(folder or ".") as entries:
        found = sorted(
            (os.path.join(folder, entry.name), entry.is_dir())  # noqa: PTH118 - `./x` stays `./x`
            for entry in entries
            if entry.name.startswith(beginning)
            and (beginning.startswith(".") or not entry.name.startswith("."))
        )
    wanted = [path for path, is_dir in found if not is_dir and is_wanted(path)]
    folders = [f"{path}{os.sep}" for path, is_dir in found if is_dir]
    return dict.fromkeys([*wanted, *folders], "")


def _is_job_file(path: str) -> bool:
    name = Path(path).name
    return name.endswith((".yaml", ".yml")) and not name.startswith("Pulumi.")


def _datasets(typed: Namespace) -> list[DatasetVersion]:
    """Those of a local store that is up: nobody waits for Azure, or starts a store, at a TAB."""
    from jobs.blobs.store import peek_data_store
    from jobs.datasets.datasets import Datasets

    store = peek_data_store(_environment(typed))
    return [record.pinned() for record in Datasets(store).versions(damaged=[])] if store else []


def _environment(typed: Namespace) -> Environment:
    """What the file says, or what was last read of the stack: a TAB starts no Pulumi."""
    from jobs.host.environment_file import known_environment, read_environment

    if typed.env is not None:
        return read_environment(typed.env)
    known = known_environment(typed.stack)
    if known is None:
        message = f"nothing is known of stack `{typed.stack}`"
        raise LaunchError(message, hint="launch env show")
    return known
