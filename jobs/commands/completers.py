"""Offer jobs, runs, stacks and datasets to a shell at Tab: quick, and never an error."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from jobs.contracts.errors import LaunchError

if TYPE_CHECKING:
    from typer._click.core import Command

    from jobs.contracts.spec import DatasetVersion, Environment, JobSpec

# What can be typed, and a word about each.
Choices = dict[str, str]
# By what was typed before, and by the beginning of the word.
Completer = Callable[[typer.Context, str], Choices]

JOB_FILES = (".yaml", ".yml")
SCRIPT = ".py"
NUM_RUNS = 30
LONGEST_S = 2
# The SDK loads in half a second on a machine that is not busy; a store's time begins after it.
LONGEST_LOAD_S = 10

# Shells insert a choice as it is, and zsh evaluates it: whoever names a file would type commands.
_PLAIN_WORD = re.compile(r"[\w./@%+=:,][\w./@%+=:,-]*")
_NOT_PLAIN = re.compile(r"[^\w ./@%+=:,;()-]")


def answer(launch: Command, instruction: str, variable: str) -> int:
    """Print the choices for the line that typer's shell function hands on; give the exit code.

    Options are offered once a `-` is typed. Where nothing is offered, shells offer files.
    """
    from typer._completion_classes import completion_init
    from typer.completion import shell_complete

    if not instruction.startswith("complete_"):
        return 0
    _end_in_time()
    # Else typer renders each choice's text by rich, which takes 0.1 s to load and reads markup.
    sys.modules["rich"] = None  # pyright: ignore[reportArgumentType]
    completion_init()
    return shell_complete(launch, {}, "launch", variable, instruction)


def _end_in_time(time_s: int = LONGEST_S) -> None:
    """End this process after a time, without an offer: a store that hangs is not waited for."""
    import signal

    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _end)
        signal.alarm(time_s)


def _end(_number: int, _frame: object) -> None:
    os._exit(0)


def _offered(completer: Completer) -> Callable[[typer.Context, str], list[tuple[str, str]]]:
    """Offer a completer's choices, less those that a shell could take for more than a word."""

    @wraps(completer)
    def offer(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        try:
            choices = completer(ctx, incomplete)
        except Exception:  # noqa: BLE001 - a half-typed line is no place for an error
            return []
        return [
            (name, _NOT_PLAIN.sub("", text))
            for name, text in choices.items()
            if name.startswith(incomplete) and _PLAIN_WORD.fullmatch(name)
        ]

    return offer


@_offered
def jobs(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the catalog's names, and the job files and scripts of the folder that is being typed."""
    from jobs.jobfile.find import catalog_names

    del ctx
    return dict.fromkeys(catalog_names(), "from the catalog") | _files(
        incomplete, (*JOB_FILES, SCRIPT)
    )


@_offered
def scripts(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the Python scripts of the folder that is being typed."""
    del ctx
    return _files(incomplete, (SCRIPT,))


@_offered
def catalog_jobs(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the catalog's names."""
    from jobs.jobfile.find import catalog_names

    del ctx, incomplete
    return dict.fromkeys(catalog_names(), "")


@_offered
def runs(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer run ids, newest first, with their state and name, and `last`."""
    from jobs.engines import load_store

    del incomplete
    return dict(load_store(_environment(ctx)).known(NUM_RUNS))


@_offered
def states(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the states of runs."""
    from jobs.contracts.spec import RunState

    del ctx, incomplete
    return dict.fromkeys(RunState, "")


@_offered
def run_names(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the names of the newest runs' jobs."""
    del incomplete
    return dict.fromkeys((spec.name for spec in _specs(ctx)), "")


@_offered
def experiments(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the experiments of the newest runs."""
    del incomplete
    return dict.fromkeys((spec.experiment or spec.name for spec in _specs(ctx)), "")


@_offered
def ranks(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the ranks of the local run that was typed, less those typed before."""
    from jobs.runs.store import RunStore

    environment = _environment(ctx)
    if not environment.workspace.is_folder:
        return {}
    store = RunStore.of(environment)
    spec = store.record(store.find(ctx.params["run"])).plan.spec
    begun, comma, _ = incomplete.rpartition(",")
    named = set(begun.split(","))
    every = map(str, range(spec.num_processes))
    return {f"{begun}{comma}{rank}": "" for rank in every if rank not in named}


@_offered
def stacks(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the stacks that have a file of settings."""
    from jobs.host.project import project_root

    del ctx, incomplete
    files = sorted(project_root().glob("Pulumi.*.yaml"))
    names = [file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in files]
    return dict.fromkeys(names, "")


@_offered
def datasets(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the datasets of a local store that is up."""
    del incomplete
    return {each.name: f"version {each.version}" for each in _datasets(ctx)}


@_offered
def dataset_versions(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer datasets and each of their versions."""
    from jobs.host.console import size_text

    del incomplete
    found = _datasets(ctx)
    versions = {each.ref: f"{each.files} files, {size_text(each.bytes)}" for each in found}
    names = {each.name: f"version {each.version}" for each in reversed(found)}
    return names | versions


@_offered
def model_versions(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the models of a local store that is up, and each of their versions."""
    from jobs.blobs.store import peek_data_store
    from jobs.datasets.models import Models

    del incomplete
    store = peek_data_store(_environment(ctx))
    found = Models(store).versions(damaged=[]) if store else []
    names = {each.name: f"version {each.version}" for each in reversed(found)}
    return names | {each.ref: f"of {each.lineage.run}" for each in found if each.lineage}


@_offered
def clusters(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the clusters of the stack with their sizes."""
    from jobs.host.console import count_text

    del incomplete
    found = _environment(ctx).clusters
    return {
        name: f"{each.size}, up to {count_text(each.max_nodes, 'node')}"
        for name, each in found.items()
    }


@_offered
def images(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the images that can be built here."""
    from jobs.host.project import sources_folder
    from jobs.images.runtimes import list_images

    del ctx, incomplete
    return dict.fromkeys(list_images(sources_folder()), "")


@_offered
def pinned_images(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the images that the stack pins."""
    del incomplete
    return dict.fromkeys(_environment(ctx).images, "")


@_offered
def job_keys(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the keys of a job file, as `--set` takes them; after `args.` the program's options."""
    from msgspec.structs import fields

    from jobs.contracts.spec import JobFile

    if incomplete.startswith("args."):
        # An option without its value, as here, leaves the arguments unread.
        return _program_options(ctx.params["job"] or ctx.args[0], incomplete)
    return {f"{field.name}=": "" for field in fields(JobFile)}


@_offered
def priorities(ctx: typer.Context, incomplete: str) -> Choices:
    """Offer the words for a priority."""
    del ctx, incomplete
    return dict.fromkeys(("low", "normal", "high"), "")


def _program_options(job: str, incomplete: str) -> Choices:
    """Offer the options of the job's program, and the values of one that takes few."""
    from jobs.jobfile.read import options_of_job

    options = options_of_job(job)
    name, equals, _ = incomplete.removeprefix("args.").partition("=")
    if equals:
        choices = options[name].choices
        return {f"args.{name}={choice}": "" for choice in choices}
    return {f"args.{option.name}=": option.text for option in options.values()}


def _files(incomplete: str, suffixes: tuple[str, ...]) -> Choices:
    """List the files with these suffixes, then the folders, of the path that is being typed."""
    folder, beginning = os.path.split(incomplete)
    with os.scandir(folder or ".") as entries:
        found = sorted(
            (os.path.join(folder, entry.name), entry.is_dir())  # noqa: PTH118 - `./x` stays `./x`
            for entry in entries
            if entry.name.startswith(beginning)
            and (beginning.startswith(".") or not entry.name.startswith("."))
        )
    wanted = [
        path
        for path, is_dir in found
        if not is_dir and path.endswith(suffixes) and not Path(path).name.startswith("Pulumi.")
    ]
    folders = [f"{path}{os.sep}" for path, is_dir in found if is_dir]
    return dict.fromkeys([*wanted, *folders], "")


def _datasets(ctx: typer.Context) -> list[DatasetVersion]:
    """List the datasets of a local store that is up; start no store, ask nothing of Azure."""
    from jobs.blobs.store import peek_data_store
    from jobs.datasets.datasets import Datasets

    store = peek_data_store(_environment(ctx))
    if store is None:
        return []
    _end_in_time(LONGEST_LOAD_S)
    importlib.import_module("azure.storage.blob.aio")
    _end_in_time()
    return [record.pinned() for record in Datasets(store).versions(damaged=[])]


def _specs(ctx: typer.Context) -> list[JobSpec]:
    """Read the newest jobs whose record this machine has; ask nothing of Azure."""
    from jobs.engines import load_store
    from jobs.runs.run_folder import read_record
    from jobs.runs.store import RunStore

    local = RunStore(load_store(_environment(ctx)).workspace)
    found: list[JobSpec] = []
    for name in local.names()[:NUM_RUNS]:
        with suppress(LaunchError):  # another one is damaged, or no run yet
            found.append(read_record(local.runs / name).plan.spec)
    return found


def _environment(ctx: typer.Context) -> Environment:
    """Read the environment file, or the cached environment of the stack; start no Pulumi."""
    from jobs.host.environment_file import known_environment, read_environment

    env, stack = ctx.params["env"], ctx.params["stack"]
    if env is not None:
        return read_environment(env)
    known = known_environment(stack)
    if known is None:
        message = f"stack `{stack}` is not in the cache"
        raise LaunchError(message, hint="launch env show")
    return known
