"""Reads the options, says what it costs, asks, and proves: `python -m tools.prove_azure --help`."""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.contracts.errors import ExitCode, LaunchError, Refused
from jobs.host import console
from jobs.host.private import make_folder
from tools.project import Project, this_project
from tools.prove_azure import driver, report, settings
from tools.prove_azure.cost import estimate, find_prices
from tools.prove_azure.record import read_record
from tools.prove_azure.session import Patience, Session
from tools.prove_azure.steps import PRIVATE, PUBLIC, Step

LIMIT = 5.0
JOBS = Path(__file__).parent / "jobs"


def main(
    argv: Sequence[str] | None = None,
    *,
    project: Project | None = None,
    environ: Mapping[str, str] | None = None,
    patience: Patience | None = None,
) -> int:
    """Prove one stack; tests name the clone, what the commands find in their environment, and how
    long to wait.
    """
    options = read_options(argv)
    try:
        return run(
            options,
            project or this_project(os.environ),
            os.environ if environ is None else environ,
            patience or Patience(),
        )
    except LaunchError as error:
        console.report_error(error)
        return int(error.exit_code)
    except KeyboardInterrupt:
        console.say("interrupted; the same command goes on")
        return int(ExitCode.INTERRUPTED)


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; whoever types `--help` sees these texts."""
    about = "Prove the stacks and jobs on a real subscription (docs/prove-azure.md)."
    parser = argparse.ArgumentParser(prog='make prove-azure PROVE="..."', description=about)
    parser.add_argument("--private", action="store_true", help="prove a private stack")
    parser.add_argument("--location", default="swedencentral", help="region of the stack")
    parser.add_argument("--name", default="prove", help="2 to 8 letters and digits of every name")
    parser.add_argument("--owner", default="", help="mail address for tags and the budget")
    parser.add_argument("--group", default="", help="object id of an Entra group that we are in")
    parser.add_argument("--address", default="", help="our public address, for `allowed_ips`")
    parser.add_argument("--limit", type=float, default=LIMIT, help="USD at most")
    parser.add_argument("--only", nargs="*", default=[], metavar="STEP", help="these steps alone")
    parser.add_argument("--keep", action="store_true", help="leave the stack as it is at the end")
    parser.add_argument("--clean", action="store_true", help="destroy what is left, and end")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    return parser.parse_args(argv)


def run(
    options: argparse.Namespace, project: Project, environ: Mapping[str, str], patience: Patience
) -> int:
    """Say the cost, ask, take the steps and write the report; 0 if every step was done."""
    stage = "test" if options.private else "dev"
    stack = f"{stage}-prove"
    every = PRIVATE if options.private else PUBLIC
    steps = choose(every, options.only)
    folder = project.state / "prove" / stack
    record = read_record(folder / "record.json", stack, options.location)
    if record.location != options.location:
        message = f"stack {stack} was begun in {record.location}"
        raise Refused(message, hint=f"--location {record.location}; or --clean, rm -r {folder}")
    prices = find_prices(stage, settings.SIZE, options.location)
    session = Session(
        project=project,
        folder=folder,
        stack=stack,
        record=record,
        prices=prices,
        environ={**environ, **settings.variables(project)},
        patience=patience,
        settings=settings.make(
            stage,
            check_options(options),
            generation=record.generation,
            role_wait_s=patience.role_wait_s,
        ),
        write_settings=lambda found: settings.write(project, stack, found),
        jobs=JOBS,
    )
    make_folder(folder)
    if options.clean:
        driver.clean_up(session)
        return int(ExitCode.SUCCEEDED if record.up_since_s is None else ExitCode.ENVIRONMENT)
    _ask(session, steps, options)
    session.write_settings(session.settings)
    try:
        driver.prove(session, steps, limit=options.limit, keep=options.keep)
    finally:
        _report(session, every, project)
    ends = [record.steps.get(step.name) for step in steps]
    done = all(end is not None and end.outcome == "done" for end in ends)
    return int(ExitCode.SUCCEEDED if done else ExitCode.ENVIRONMENT)


def choose(steps: Sequence[Step], names: Sequence[str]) -> Sequence[Step]:
    """Pick the named steps; all where none is named."""
    known = [step.name for step in steps]
    for name in names:
        if name not in known:
            message = f"there is no step `{name}`"
            raise LaunchError(message, hint=f"one of {', '.join(known)}")
    return [step for step in steps if not names or step.name in names]


def check_options(options: argparse.Namespace) -> argparse.Namespace:
    """Refuse what the stack could not be made with."""
    if not options.clean and "@" not in options.owner:
        message = "no mail address is named for tags and the budget's mails"
        raise LaunchError(message, hint="--owner MAIL")
    if not options.clean and not options.group:
        message = "no group is named that may push data and run jobs"
        hint = "--group OBJECT_ID of an Entra group that you are in (docs/prove-azure.md)"
        raise LaunchError(message, hint=hint)
    if not (options.clean or options.private):
        try:
            ipaddress.IPv4Address(options.address)
        except ValueError:
            hint = "--address N.N.N.N, as `curl -s https://ifconfig.me` says it"
            message = f"`{options.address}` is no address that data could be pushed from"
            raise LaunchError(message, hint=hint) from None
    return options


def _ask(session: Session, steps: Sequence[Step], options: argparse.Namespace) -> None:
    """Say what is going to happen and what it costs at most; ask."""
    left = [step for step in steps if not session.record.is_done(step.name)]
    most = estimate(session.prices, driver.minutes_of(left))
    hours = sum(step.minutes for step in left) / 60
    console.say(
        f"{len(left)} steps on stack {session.stack} in {options.location}: {most:.2f} USD at most, "
        f"{hours:.1f} hours at most; {session.record.spent:.2f} USD are spent. Prices: "
        f"{session.prices.node:.3f} USD/h a node of {settings.SIZE}, {session.prices.idle:.3f} USD/h "
        f"the stack. It stops at {options.limit:.2f} USD, and "
        f"{'leaves' if options.keep else 'destroys'} the stack at the end."
    )
    if not options.yes and not console.confirm("Begin?"):
        message = "nothing was begun"
        raise Refused(message, hint="answer `y`, or add --yes")


def _report(session: Session, steps: Sequence[Step], project: Project) -> None:
    """Write both reports, and say where they lie."""
    from importlib.metadata import version

    place = session.folder / "report"
    texts = {
        ".md": report.write_markdown(session.record, steps, version("trainyard")),
        ".json": report.write_json(session.record, steps),
    }
    for suffix, text in texts.items():
        place.with_suffix(suffix).write_text(text, encoding="utf-8")
    denied = [id_ for id_, found in session.record.verdicts.items() if not found.holds]
    console.say(f"did not hold: {', '.join(sorted(denied)) or 'nothing'}")
    console.out(str(place.with_suffix(".md").relative_to(project.root)))


if __name__ == "__main__":
    sys.exit(main())
