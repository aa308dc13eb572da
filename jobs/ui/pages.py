"""The pages: which address shows what."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from jobs.contracts.errors import LaunchError, NotFound
from jobs.host import console
from jobs.ui import actions, live, one_run, words_shown
from jobs.ui.guard import Guard
from jobs.ui.reading import Reading, caught

FOLDER = Path(__file__).parent
PAGE_SIZE = 200
# Of a page: its name in the menu, and its address.
MENU = (
    ("Runs", "/runs"),
    ("Jobs", "/jobs"),
    ("Datasets", "/datasets"),
    ("Clusters", "/clusters"),
    ("Environments", "/environments"),
    ("Doctor", "/doctor"),
)
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


def make_pages(reading: Reading, *, port: int, token: str) -> ASGIApp:
    """Make the application: the pages behind their guard."""
    pages = Pages(reading)
    routes = [
        Route("/", _begin),
        Route("/runs", _page(pages.runs)),
        Route("/runs/{place}/{run}", _page(pages.run)),
        Route("/runs/{place}/{run}/diff", _page(pages.diff)),
        Route("/runs/{place}/{run}/now", _page(pages.now)),
        Route("/runs/{place}/{run}/curves", _page(pages.curves)),
        Route("/runs/{place}/{run}/lines", live.lines_of(reading)),
        Route("/runs/{place}/{run}/outputs/{path:path}", _page(pages.output)),
        Route("/compare", _page(pages.compare)),
        Route("/compare/curves", _page(pages.compared_curves)),
        Route("/jobs", _page(pages.jobs)),
        Route("/datasets", _page(pages.datasets)),
        Route("/clusters", _page(pages.clusters)),
        Route("/environments", _page(pages.environments)),
        Route("/environments/{place}", _page(pages.environment)),
        Route("/doctor", _page(pages.doctor)),
        Route("/act", _page(pages.ask)),
        Route("/act", _act(pages), methods=["POST"]),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]
    return Guard(Starlette(routes=routes), port=port, token=token)


async def _begin(_: Request) -> Response:
    return RedirectResponse("/runs")


def _page(show: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Make a page in a thread; an error of a verb is a page that says it."""

    async def answer(request: Request) -> Response:
        try:
            return await run_in_threadpool(show, request)
        except LaunchError as error:
            is_missing = isinstance(error, NotFound)
            status = HTTPStatus.NOT_FOUND if is_missing else HTTPStatus.BAD_REQUEST
            if request.headers.get("accept", "").startswith("application/json"):
                return JSONResponse({"error": error.message, "hint": error.hint}, status)
            return render("error.html", status=status, error=error)
        except Exception as error:  # noqa: BLE001 - the server lives on, and the page says what to report
            console.warn("".join(traceback.format_exception(error)))
            bug = LaunchError(f"{type(error).__name__}: {error}", hint="this is a bug in launch")
            return render("error.html", status=HTTPStatus.INTERNAL_SERVER_ERROR, error=bug)

    return answer


def _act(pages: Pages) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        form = await request.form()
        return await _page(lambda _: pages.act(form))(request)

    return answer


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters.update(words_shown.FILTERS)  # pyright: ignore[reportUnknownMemberType]
    made.globals.update(menu=MENU)  # pyright: ignore[reportUnknownMemberType]
    return made


def render(template: str, *, status: int = HTTPStatus.OK, **values: Any) -> Response:
    """Fill a template; every value is text in it."""
    return HTMLResponse(_templates().get_template(template).render(values), status)


class Pages:
    """Each method makes one page."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def runs(self, request: Request) -> Response:
        """Runs of all environments, or of one: filtered, sorted, a page of them."""
        asked = request.query_params
        number = _whole(asked.get("page"), 1)
        filters = [
            f"--{name}={asked[name].strip()}" for name in _FILTERS if asked.get(name, "").strip()
        ]
        limit = f"--limit={PAGE_SIZE * number + 1}"
        places = [asked["place"]] if asked.get("place") else self._reading.places()
        told = [
            caught(place, lambda place=place: self._reading.ask(place, "ls", limit, *filters))
            for place in places
        ]
        found = [{**run, "place": each.place} for each in told for run in each.value or ()]
        found.sort(key=lambda run: run["created"], reverse=True)
        sort = asked.get("sort", "")
        if sort in SORTS:
            found.sort(key=SORTS[sort])
        first = PAGE_SIZE * (number - 1)
        return render(
            "runs.html",
            runs=found[first : first + PAGE_SIZE],
            errors=[each for each in told if each.error],
            places=self._reading.places(),
            asked=dict(asked),
            states=STATES,
            sorts=list(SORTS),
            page=number,
            has_more=len(found) > first + PAGE_SIZE,
        )

    def run(self, request: Request) -> Response:
        """One run: state, reason, figures, curves, lines, checkpoints, outputs, what it was made of."""
        place, run = _run_of(request)
        told = self._reading.ask(place, "show", of=[run])
        outputs = one_run.outputs_of(told)
        actions_of = actions.of_run(told, place)
        return render(
            "run.html",
            place=place,
            run=told,
            outputs=outputs,
            actions=actions_of,
            ranks=range(told["world_size"]),
            is_on=one_run.is_on(told),
            configuration=one_run.configuration(told),
            command=["launch", "show", told["id"], *self._reading.words_for(place)],
        )

    def now(self, request: Request) -> Response:
        """The state of a run as its page shows it, to be put in place of the old one."""
        place, run = _run_of(request)
        told = self._reading.ask(place, "show", of=[run])
        return render("now.html", run=told, place=place, is_on=one_run.is_on(told))

    def curves(self, request: Request) -> Response:
        """The curves of a run, as JSON that the charts draw."""
        place, run = _run_of(request)
        return JSONResponse(one_run.charts_of([(run, self._report(place, run))]))

    def _report(self, place: str, run: str) -> Path:
        return Path(self._reading.ask(place, "show", of=[run])["run_dir"])

    def diff(self, request: Request) -> Response:
        """How a run differs from another."""
        place, run = _run_of(request)
        other = request.query_params.get("with", "").strip()
        told = self._reading.ask(place, "diff", of=[other, run]) if other else None
        return render("diff.html", place=place, run=run, other=other, told=told)

    def compare(self, request: Request) -> Response:
        """Several runs of one environment: final figures, curves over each other."""
        by_place = self._compared(request)
        told = [
            {**each, "place": place}
            for place, runs in by_place.items()
            for each in self._reading.ask(place, "report", of=runs)["runs"]
        ]
        return render(
            "compare.html", reports=told, labels=one_run.labels_of(told), query=request.url.query
        )

    def compared_curves(self, request: Request) -> Response:
        """The curves of several runs, as JSON."""
        found = [
            (run, self._report(place, run))
            for place, runs in self._compared(request).items()
            for run in runs
        ]
        return JSONResponse(one_run.charts_of(found))

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
        """A file that a run wrote: a picture is shown, anything else is downloaded."""
        place, run = _run_of(request)
        told = self._reading.ask(place, "show", of=[run])
        return one_run.file_of(told, request.path_params["path"])

    def jobs(self, request: Request) -> Response:
        """Jobs of the catalog, and a form that starts one of them, or a job file."""
        place = request.query_params.get("place") or next(iter(self._reading.places()), "")
        told: Any = self._reading.ask(place, "jobs") if place else []
        return render("jobs.html", jobs=told, place=place, places=self._reading.places())

    def datasets(self, _: Request) -> Response:
        """Datasets and models with their versions."""
        return render(
            "datasets.html",
            datasets=self._reading.ask_each("data", "ls"),
            models=self._reading.ask_each("model", "ls"),
        )

    def clusters(self, _: Request) -> Response:
        """Clusters: nodes by state, cost now, and what can be done with them."""
        told = [
            caught(place, lambda place=place: self._cluster(place))
            for place in self._reading.places()
        ]
        return render("clusters.html", told=told, actions_of=actions.of_cluster)

    def _cluster(self, place: str) -> dict[str, Any]:
        environment = self._reading.ask(place, "env", "show")
        listed = caught(place, lambda: self._reading.ask(place, "cluster", "ls"))
        return {"environment": environment, "listed": listed}

    def environments(self, _: Request) -> Response:
        """The stacks of the project, up or not."""
        return render(
            "environments.html", stacks=self._reading.stacks(), places=self._reading.places()
        )

    def environment(self, request: Request) -> Response:
        """One environment; and what `up` would change, where that was asked."""
        place = request.path_params["place"]
        shown = caught(place, lambda: self._reading.ask(place, "env", "show"))
        is_asked = "changes" in request.query_params
        changes = (
            caught(place, lambda: self._reading.ask(place, "env", "check")) if is_asked else None
        )
        return render("environment.html", place=place, shown=shown, changes=changes)

    def doctor(self, _: Request) -> Response:
        """What this machine has, and what is missing."""
        return render("doctor.html", told=self._reading.ask_each("doctor"))

    def ask(self, request: Request) -> Response:
        """An action, before it is done: the command line, and what it would do."""
        action = actions.asked_of(request.query_params)
        line = actions.line_of(action, self._reading)
        return render("ask.html", action=action, words=line.words(), plan=actions.plan_of(line))

    def act(self, form: FormData) -> Response:
        """Do it, and show what came of it."""
        action = actions.asked_of(form)
        line = actions.line_of(action, self._reading)
        done = actions.do(line)
        if isinstance(done, Mapping) and "id" in done and line.verb in ("run", "rerun"):
            return RedirectResponse(f"/runs/{action.place}/{done['id']}", HTTPStatus.SEE_OTHER)
        return render("done.html", words=line.words(), done=done)


def _run_of(request: Request) -> tuple[str, str]:
    return request.path_params["place"], request.path_params["run"]


def _whole(text: str | None, default: int) -> int:
    return int(text[:6]) if text and text.isascii() and text.isdecimal() else default
