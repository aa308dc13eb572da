"""Makes the pages, by the verbs that tell what they show."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from jobs.contracts.errors import LaunchError
from jobs.runs.charts import COLOURS, COLOURS_ON_DARK
from jobs.runs.metrics import read_all_curves, read_by
from jobs.ui import actions, live, one_run, tables, words_shown
from jobs.ui.curves import Curves
from jobs.ui.doing import Doings
from jobs.ui.reading import Reading, alike, caught
from jobs.ui.rendering import render

PAGE_SIZE = 100
STATES = (
    *("queued", "preparing", "running", "completed", "failed", "preempted", "cancelled", "lost"),
)
_FILTERS = ("name", "experiment", "tag", "state", "since")
# What a list of runs can be sorted by; without one it is newest first.
SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda run: run["name"],
    "state": lambda run: run["state"],
    "cluster": lambda run: run["cluster"],
    "cost": lambda run: -run["cost"]["amount"] if run["cost"] else 0,
    "size": lambda run: -run["world_size"],
    "oldest": lambda run: run["created"],
}


class Pages:
    """Each method makes one page."""

    def __init__(self, reading: Reading, curves: Curves, doings: Doings) -> None:
        self._reading, self._curves = reading, curves
        self._doings = doings

    def runs(self, request: Request) -> Response:
        """Show the runs of all environments, or of one: filtered, sorted, a page of them."""
        asked = request.query_params
        number = max(_whole(asked.get("page"), 1), 1)
        filters = [
            f"--{name}={asked[name].strip()}" for name in _FILTERS if asked.get(name, "").strip()
        ]
        sort = SORTS.get(asked.get("sort", ""))
        # The newest are read without the others; of any other order all have to be.
        how_many = "--all" if sort else f"--limit={PAGE_SIZE * number + 1}"
        places = [asked["place"]] if asked.get("place") else None
        told = self._reading.ask_each("ls", how_many, *filters, places=places)
        found = [{**run, "place": each.place} for each in told for run in each.value or ()]
        found.sort(key=lambda run: run["created"], reverse=True)
        if sort:
            found.sort(key=sort)
        first = PAGE_SIZE * (number - 1)
        return render(
            "runs.html",
            runs=found[first : first + PAGE_SIZE],
            errors=alike(told),
            places=self._reading.places(),
            asked=dict(asked),
            states=STATES,
            sorts=list(SORTS),
            page=number,
            has_more=len(found) > first + PAGE_SIZE,
        )

    def run(self, request: Request) -> Response:
        """Show a run: state, reason, figures, curves, lines, checkpoints, outputs, what it was made of."""
        place, run = _run_of(request)
        told = self._reading.ask(place, "show", of=[run])
        address, record = _address(place, told["id"]), tables.record_of(told["record"])
        words = self._reading.words_for(place)
        ages = {
            each["name"]: words_shown.age(each["saved"]) if each["saved"] else ""
            for each in told["checkpoints"]["all"]
        }
        return render(
            "run.html",
            **_shown(place, told),
            outputs=one_run.outputs_of(told["id"], told["run_dir"], address),
            fetched=one_run.fetched_to(told["id"]),
            actions=actions.of_run(told, place),
            num_logs=record.plan.spec.num_processes,
            asked=request.query_params,
            tables=[
                tables.checkpoints(told["checkpoints"]["all"], ages),
                tables.ranks(told["ranks"]),
                tables.configuration(record),
            ],
            command=["launch", "show", told["id"], *words],
        )

    def now(self, request: Request) -> Response:
        """Show the state of a run as its page shows it, to be put in place of the old one."""
        place, run = _run_of(request)
        return render("now.html", **_shown(place, self._reading.ask(place, "show", of=[run])))

    def curves(self, request: Request) -> Response:
        """Send the curves of a run, as JSON that the charts draw."""
        place, run = _run_of(request)
        return self._charts(request, [(run, self._folder(place, run))])

    def _charts(self, request: Request, runs: Sequence[tuple[str, Path]]) -> Response:
        """Charts of runs; with points those that `chart` names, each after the version that is known."""
        asked = (each.partition(" ") for each in request.query_params.getlist("chart"))
        wanted = {title: version for version, _, title in asked}
        return JSONResponse(self._curves.charts(runs, wanted))

    def _folder(self, place: str, run: str) -> Path:
        engine, handle = live.open_run_at(self._reading, place, run)
        engine.store.bring(handle)
        return Path(handle.run_dir)

    def diff(self, request: Request) -> Response:
        """Show how a run differs from another."""
        place, run = _run_of(request)
        other = request.query_params.get("with", "").strip()
        with read_by(read_all_curves):  # nothing here reads on, as the charts do
            told = self._reading.ask(place, "diff", of=[other, run]) if other else None
        shown = [tables.differences(told), tables.final_figures(told)] if told else []
        return render(
            "diff.html", address=_address(place, run), run=run, other=other, told=told, tables=shown
        )

    def compare(self, request: Request) -> Response:
        """Show several runs of one environment: final figures, curves over each other."""
        by_place = self._compared(request)
        told = [
            {**each, "place": place}
            for place, runs in by_place.items()
            for each in self._reading.ask(place, "report", "--no-picture", of=runs)["runs"]
        ]
        return render(
            "compare.html",
            reports=told,
            labels=one_run.labels_of(told),
            is_on=any(one_run.is_on(each) for each in told),
            query=request.url.query,
        )

    def compared_curves(self, request: Request) -> Response:
        """Send the curves of several runs, as JSON."""
        found = [
            (run, self._folder(place, run))
            for place, runs in self._compared(request).items()
            for run in runs
        ]
        return self._charts(request, found)

    def _compared(self, request: Request) -> dict[str, list[str]]:
        by_place: dict[str, list[str]] = {}
        for each in request.query_params.getlist("run"):
            place, _, run = each.partition("/")
            by_place.setdefault(place, []).append(run)
        if not by_place:
            message = "no run was chosen"
            raise LaunchError(message, hint="tick the runs to compare on the page of runs")
        return by_place

    def output(self, request: Request) -> Response:
        """Send a file that a run wrote: a picture is shown, anything else is downloaded."""
        place, run = _run_of(request)
        _, handle = live.open_run_at(self._reading, place, run)
        return one_run.file_of(handle, one_run.name_in(request.scope["raw_path"]))

    def jobs(self, request: Request) -> Response:
        """Show the jobs of the catalog, and a form that starts one of them, or a job file."""
        place = request.query_params.get("place") or next(iter(self._reading.places()), "")
        told = caught(place, lambda: self._reading.ask(place, "jobs") if place else [])
        return render("jobs.html", told=told, place=place, places=self._reading.places())

    def datasets(self, _: Request) -> Response:
        """Show datasets and models with their versions."""
        found = [("data", self._reading.ask_each("data", "ls"))]
        found.append(("model", self._reading.ask_each("model", "ls")))
        sections = [
            (kind, each, tables.versions(kind, each.place, each.value) if each.value else None)
            for kind, told in found
            for each in told
            if not each.error
        ]
        errors = alike([each for _, told in found for each in told])
        return render("datasets.html", sections=sections, errors=errors)

    def data(self, request: Request) -> Response:
        """Show a version of a dataset: size, largest folders; where asked, how another one differs."""
        place, ref = request.path_params["place"], request.path_params["ref"]
        told = self._reading.ask(place, "data", "show", of=[ref])
        other = request.query_params.get("with", "").strip()
        shown = [
            tables.shares("Folder", told.pop("folders")),
            tables.shares("Kind", told.pop("kinds")),
        ]
        found = self._reading.ask(place, "data", "diff", of=[other, ref]) if other else None
        changes = tables.changes(found["changes"]) if found else None
        return render(
            "version.html",
            name=ref,
            other=other,
            can_differ=True,
            tables=[*([changes] if changes else []), tables.facts("Version", told), *shown],
        )

    def model(self, request: Request) -> Response:
        """Show a version of a model: size, the run that wrote it."""
        place, ref = request.path_params["place"], request.path_params["ref"]
        told = self._reading.ask(place, "model", "show", of=[ref])
        shown = [tables.facts("Version", told)]
        return render("version.html", name=ref, other="", can_differ=False, tables=shown)

    def clusters(self, _: Request) -> Response:
        """Show clusters: nodes by state, cost now, and what can be done with them."""
        told = self._reading.each(["clusters"], self._clusters_of)
        shown = [each for each in told if not each.error]
        return render("clusters.html", told=shown, errors=alike(told))

    def _clusters_of(self, place: str) -> dict[str, Any]:
        environment = self._reading.ask(place, "env", "show")
        if environment["subscription_id"] is None:
            on = ["--all", *(f"--state={each}" for each in ("queued", "preparing", "running"))]
            runs = self._reading.ask(place, "ls", *on)
            return {
                "table": tables.local_clusters(place, environment["clusters"], runs),
                "live": [],
            }
        live = self._reading.ask(place, "cluster", "ls")
        done = [(each, actions.of_cluster(each, place)) for each in live]
        return {"table": tables.live_clusters(place, live), "live": done}

    def environments(self, _: Request) -> Response:
        """Show the stacks of the project, up or not."""
        return render(
            "environments.html", stacks=self._reading.stacks(), places=self._reading.places()
        )

    def environment(self, request: Request) -> Response:
        """Show an environment; and what `up` would change, where that was asked."""
        place = request.path_params["place"]
        shown = caught(place, lambda: self._reading.ask(place, "env", "show"))
        is_asked = "changes" in request.query_params
        changes = (
            caught(place, lambda: self._reading.ask(place, "env", "check")) if is_asked else None
        )
        return render("environment.html", place=place, shown=shown, changes=changes, make=tables)

    def doctor(self, _: Request) -> Response:
        """Show what this machine has, and what is missing; of the machine alone where nothing is up."""
        unknown = self._reading.unknown()
        up = [each for each in self._reading.places() if each not in unknown]
        # It takes seconds, and is what the page is for: it is waited for.
        told = [caught(each, lambda place=each: self._reading.ask(place, "doctor")) for each in up]
        if not told:
            told = [caught("this machine", self._reading.ask_machine)]
        shown = [tables.checks(each.place, each.value) for each in told if each.value]
        told += self._reading.ask_each("env", "show", places=unknown)
        return render("doctor.html", tables=shown, errors=alike(told))

    def ask(self, request: Request) -> Response:
        """Show an action, before it is done: the command line, its plan, and what may be changed of it."""
        action = actions.asked_of(request.query_params)
        line = actions.line_of(action, self._reading)
        return render(
            "ask.html",
            action=action,
            once=secrets.token_urlsafe(12),
            words=line.words(),
            plan=caught("", lambda: actions.plan_of(line)),
            changes=actions.changes_of(action),
        )

    def act(self, form: ImmutableMultiDict[str, Any]) -> Response:
        """Do an action, and lead to what came of it."""
        action = actions.asked_of(form)
        line = actions.line_of(action, self._reading)
        once = str(form.get("once", ""))
        doing = self._doings.begin(action.place, line.words(), lambda: actions.do(line), once=once)
        return RedirectResponse(f"/done/{doing.number}", HTTPStatus.SEE_OTHER)

    def done(self, request: Request) -> Response:
        """Show what came of an action, or that it goes on; a run that was started is shown itself."""
        doing = self._doings.find(_whole(request.path_params["number"], 0))
        is_over = doing.is_over.is_set()
        if doing.error is not None:
            status = HTTPStatus.BAD_REQUEST
            return render("error.html", status=status, error=doing.error, words=doing.words)
        if doing.value is not None and doing.words[0] in ("run", "rerun"):
            address = _address(doing.place, doing.value["id"])
            return RedirectResponse(address, HTTPStatus.SEE_OTHER)
        return render("done.html", doing=doing, is_over=is_over)

    def colours(self, _: Request) -> Response:
        """Send the colours of lines and ranks, for light and dark: those of `launch report`."""
        light, dark = (
            " ".join(f"--series-{number}: {each};" for number, each in enumerate(colours))
            for colours in (COLOURS, COLOURS_ON_DARK)
        )
        ranks = "\n".join(
            f'.line[data-rank="{number}"] {{ border-color: var(--series-{number}); }}'
            for number in range(len(COLOURS))
        )
        text = f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{ranks}\n"
        return Response(text, media_type="text/css")


def _shown(place: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """Give what the part of a run's page needs that is read again and again."""
    address = _address(place, run["id"])
    return {
        "address": address,
        "run": run,
        "is_on": one_run.is_on(run),
        "evidence": one_run.evidence_of(run, address),
    }


def _address(place: str, run: str) -> str:
    return f"/runs/{quote(place)}/{quote(run)}"


def _run_of(request: Request) -> tuple[str, str]:
    return request.path_params["place"], request.path_params["run"]


def _whole(text: str | None, default: int) -> int:
    return int(text[:6]) if text and text.isascii() and text.isdecimal() else default
