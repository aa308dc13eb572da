"""`launch model`: register a run's model; list, show, fetch and copy models."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers, data_options, options
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.errors import LaunchError
    from jobs.contracts.spec import Environment, RunHandle
    from jobs.datasets.records import DatasetRecord
    from jobs.engines.base import Engine

Ref = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@N]",
        help="Model or one version of it.",
        autocompletion=completers.model_versions,
    ),
]


def register(
    *,
    run: options.Run,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model's name (default: the job's).")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="OUTPUT", help="Output with the model (default: `model`, or the only output)."
        ),
    ] = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Register a completed run's output as a new version of a model, with its lineage."""
    from jobs.datasets.dataset_text import size_of
    from jobs.datasets.making import Reports
    from jobs.datasets.model_text import model_fields
    from jobs.datasets.models import Models, parse_model
    from jobs.host.progress import ProgressLines
    from jobs.launching.lineage import lineage_of

    environment = options.open_environment(stack, env)
    engine, handle = options.open_run(run, environment)
    chosen = _output_of(engine, handle, output)
    name = name or engine.store.record(handle).plan.spec.name
    parse_model(name)
    lineage = lineage_of(handle, chosen, engine.store)
    # Kept after a kill: what is in it is not fetched again.
    fetched = Path(handle.run_dir, "registering")
    folder = engine.fetch(handle, fetched) / "outputs" / chosen
    _require_files(folder, handle, chosen)
    lines = ProgressLines()
    reports = Reports.on(lines, warn=console.warn)
    with lines:
        pushed = Models.of(environment).register(folder, name, lineage, reports)
    shutil.rmtree(fetched, ignore_errors=True)
    record = pushed.dataset
    _tell_workspace(record, environment)
    if json:
        console.out_json({**model_fields(record), "already": pushed.already})
        return
    of = f", of {record.lineage.run}" if record.lineage else ""
    known = "is registered already" if pushed.already else "is registered"
    console.say(f"{record.ref} {known}: {size_of(record)}{of}")
    console.out(record.ref)


def _output_of(engine: Engine, handle: RunHandle, asked: str | None) -> str:
    """Choose the output; raises Refused for a run that is not completed, NotFound without output."""
    from jobs.contracts.errors import NotFound, Refused
    from jobs.contracts.spec import RunState

    state = engine.store.status(handle).state
    if state is not RunState.COMPLETED:
        message = f"{handle.id} is {state.value}; only a completed run's model is registered"
        over = state.is_terminal()
        hint = f"launch rerun {handle.id}" if over else f"launch wait {handle.id}"
        raise Refused(message, hint=hint)
    outputs = engine.store.record(handle).plan.spec.outputs
    if asked is None:
        if "model" in outputs:
            return "model"
        if len(outputs) == 1:
            return outputs[0]
    elif asked in outputs:
        return asked
    named = f"no output `{asked}`" if asked else "no output `model`"
    there = " or ".join(f"--output {each}" for each in outputs)
    hint = there or "the job file names outputs: `outputs: {model: {}}`; run it again"
    message = f"{handle.id} has {named}"
    raise NotFound(message, hint=hint)


def _require_files(folder: Path, handle: RunHandle, output: str) -> None:
    from jobs.contracts.errors import NotFound

    if not folder.is_dir() or not any(folder.iterdir()):
        message = f"{handle.id} wrote no file to its output `{output}`"
        raise NotFound(message, hint=f"launch fetch {handle.id} downloads its outputs")


def list_versions(
    *,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Model to list (default: all).",
            autocompletion=completers.model_versions,
        ),
    ] = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """List models and their versions, the newest of each first."""
    from jobs.datasets.model_text import model_fields, models_table
    from jobs.datasets.models import Models, parse_model

    models = Models.of(options.open_environment(stack, env))
    damaged: list[LaunchError] = []
    records = models.versions(name and parse_model(name)[0], damaged=damaged)
    if name is not None and not records:
        models.resolve(name)  # says what there is instead
    console.warn_damaged(damaged)
    if json:
        console.out_json([model_fields(record) for record in records])
    elif records:
        console.out(models_table(records))
    elif not damaged:
        console.say("no model yet\n\nhint: launch model register RUN")


def show(
    *,
    ref: Ref,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show a version: size, run, data, code, image, figures, place in the store."""
    from jobs.datasets.model_text import model_fields, model_text
    from jobs.datasets.models import Models, in_container

    environment = options.open_environment(stack, env)
    record = Models.of(environment).resolve(ref)
    storage, prefix = environment.storage, in_container(record).content_prefix
    url = f"{storage.blob_endpoint.rstrip('/')}/{storage.containers.data}/{prefix}"
    places = {"url": url, **options.open_engine(environment).model_places(record)}
    if json:
        console.out_json({**model_fields(record), **places})
        return
    console.out(model_text(record, places.items()))


def fetch(
    *,
    ref: Ref,
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=Path, help="Folder to write to (default: ./NAME-N)."),
    ] = None,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Download a model: its files into DIR/files, its record into DIR/model.json."""
    from jobs.datasets.models import Models
    from jobs.host.progress import ProgressLines

    models = Models.of(options.open_environment(stack, env))
    record = models.resolve(ref)
    folder = into or Path(f"{record.name}-{record.version}")
    with ProgressLines() as lines:
        models.fetch(record, folder, lines.open("receiving"))
    console.out(str(folder))


def copy(
    *,
    ref: Ref,
    to: options.ToStack,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Copy a version to another stack, with its lineage."""
    from jobs.datasets.dataset_text import copied_text
    from jobs.datasets.making import Reports
    from jobs.datasets.model_text import model_fields
    from jobs.datasets.models import Models
    from jobs.host.progress import ProgressLines

    source, target = options.open_environment(stack, env), options.open_target(to)
    models = Models.of(source)
    record = models.resolve(ref)
    lines = ProgressLines()
    reports = Reports.on(lines, reading="receiving")
    with lines:
        copied = Models.of(target).copy_from(models, record, source, reports)
    _tell_workspace(copied.dataset, target)
    if json:
        told = {"already": copied.already, "stack": target.stack}
        console.out_json({**model_fields(copied.dataset), **told})
        return
    what = f"{record.ref} of stack {source.stack}"
    console.say(copied_text(copied, what, target.stack, is_dry=False))
    console.out(copied.dataset.ref)


def _tell_workspace(record: DatasetRecord, environment: Environment) -> None:
    data_options.tell(options.open_engine(environment).register_model, record)


app = make_app(
    {
        "register": register,
        "ls": list_versions,
        "show": show,
        "fetch": fetch,
        "copy": copy,
    }
)
