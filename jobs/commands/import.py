"""`launch import`: write job files from those of other tools."""  # noqa: N999 - a verb's name

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.contracts.errors import ExitCode, LaunchError
from jobs.host import console

if TYPE_CHECKING:
    from jobs.launching.imports.leaves import Told


def import_documents(
    *,
    documents: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|FOLDER...",
            parser=Path,
            help="job.json, cluster.json and other documents of one project; docs/import.md lists them.",
        ),
    ],
    into: Annotated[
        Path,
        typer.Option(
            "--into", metavar="DIR", parser=Path, help="Folder to write the job files into."
        ),
    ] = Path("imported"),
    code: Annotated[
        Path | None,
        typer.Option(
            "--code",
            metavar="DIR",
            parser=Path,
            help="Folder that has the scripts of mounted shares.",
        ),
    ] = None,
    as_mpi: Annotated[
        bool,
        typer.Option("--as-mpi", help="Carry on CNTK, Caffe, Caffe2 and Chainer as MPI programs."),
    ] = False,
    json: options.Json = False,
) -> int:
    """Write job files from those of Batch AI and other tools.

    Every key is reported: converted, kept by a variable, or refused with its reason. The exit code is 3 where one
    was refused.
    """
    from jobs.launching.imports import importing
    from jobs.launching.imports.draft import Choices
    from jobs.launching.imports.leaves import Outcome

    if code is not None and not code.is_dir():
        message = f"the folder --code {code} does not exist"
        raise LaunchError(message, hint="give the folder that has the jobs' scripts")
    imported = importing.import_documents(documents, into, Choices(code=code, as_mpi=as_mpi))
    for remark in imported.remarks:
        console.say(remark)
    files = importing.write_files(imported, into) if imported.files else []
    if json:
        console.out_json({"files": [str(each) for each in files], "entries": imported.told})
    else:
        _print_report(imported.told, files)
    is_refused = any(each.outcome is Outcome.REFUSED for each in imported.told)
    return int(ExitCode.REFUSED if is_refused else ExitCode.SUCCEEDED)


def _print_report(told: tuple[Told, ...], files: list[Path]) -> None:
    for file in dict.fromkeys(each.file for each in told):
        console.out(f"{file}:")
        for each in told:
            if each.file == file:
                console.out(f"  {each.outcome:<9}  {each.key}: {each.reason or each.became or ''}")
    for path in files:
        console.out(f"wrote {path}")
    if not files:
        console.say("nothing was written: no document has anything that can run here")


app = make_app({"import": import_documents})
