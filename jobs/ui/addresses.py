"""Makes the application of the pages: which address shows what, and what an error is answered with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from jobs.contracts.errors import LaunchError, NotFound
from jobs.runs.metrics import read_by
from jobs.ui import live
from jobs.ui.curves import Curves
from jobs.ui.doing import Doings
from jobs.ui.edge import Bug, or_bug
from jobs.ui.guard import Guard
from jobs.ui.pages import Pages
from jobs.ui.reading import Reading
from jobs.ui.rendering import FOLDER, render


def make_pages(reading: Reading, *, port: int, token: str) -> ASGIApp:
    """Make the application: the pages behind their guard."""
    curves, doings = Curves(), Doings()

    def page(
        show: Callable[[Pages, Request], Response],
    ) -> Callable[[Request], Awaitable[Response]]:
        return _page(lambda request: show(Pages(reading.once(), curves, doings), request))

    routes = [
        Route("/", _begin),
        Route("/runs", page(Pages.runs)),
        Route("/runs/{place}/{run}", page(Pages.run)),
        Route("/runs/{place}/{run}/diff", page(Pages.diff)),
        Route("/runs/{place}/{run}/now", page(Pages.now)),
        Route("/runs/{place}/{run}/curves", page(Pages.curves)),
        Route("/runs/{place}/{run}/lines", live.lines_of(reading)),
        Route("/runs/{place}/{run}/outputs/{path:path}", page(Pages.output)),
        Route("/compare", page(Pages.compare)),
        Route("/compare/curves", page(Pages.compared_curves)),
        Route("/jobs", page(Pages.jobs)),
        Route("/datasets", page(Pages.datasets)),
        Route("/data/{place}/{ref}", page(Pages.data)),
        Route("/model/{place}/{ref}", page(Pages.model)),
        Route("/clusters", page(Pages.clusters)),
        Route("/environments", page(Pages.environments)),
        Route("/environments/{place}", page(Pages.environment)),
        Route("/doctor", page(Pages.doctor)),
        Route("/act", page(Pages.ask)),
        Route("/act", _act(page), methods=["POST"]),
        Route("/done/{number}", page(Pages.done)),
        Route("/colours.css", page(Pages.colours)),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(_ReadByCurves, curves)])
    return Guard(app, port=port, token=token)


class _ReadByCurves:
    """Has verbs that read metrics ask the curves that pages keep."""

    def __init__(self, app: ASGIApp, curves: Curves) -> None:
        self._app, self._curves = app, curves

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with read_by(self._curves.read):
            await self._app(scope, receive, send)


async def _begin(_: Request) -> Response:
    return RedirectResponse("/runs")


def _page(show: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Make a page in a thread; an error of a verb is a page that says it."""

    async def answer(request: Request) -> Response:
        try:
            return await run_in_threadpool(lambda: or_bug(lambda: show(request)))
        except Bug as bug:
            return render("error.html", status=HTTPStatus.INTERNAL_SERVER_ERROR, error=bug)
        except LaunchError as error:
            is_missing = isinstance(error, NotFound)
            status = HTTPStatus.NOT_FOUND if is_missing else HTTPStatus.BAD_REQUEST
            if request.headers.get("accept", "").startswith("application/json"):
                return JSONResponse({"error": error.message, "hint": error.hint}, status)
            return render("error.html", status=status, error=error)

    return answer


def _act(
    page: Callable[
        [Callable[[Pages, Request], Response]], Callable[[Request], Awaitable[Response]]
    ],
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        form = await request.form()
        return await page(lambda pages, _: pages.act(form))(request)

    return answer
