"""Pages full of what others wrote, in a real browser: everybody can use them, and nothing in them is obeyed."""

from __future__ import annotations

import json
import math
import os
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

from jobs.contracts.errors import LaunchError
from tests.fakes.asked_pages import CLUSTER, Stacks
from tests.jobs.ui.conftest import Served, new_context
from tests.jobs.ui.test_browser import HOSTILE, PIXEL, folder_of
from tests.pulumi_project import REPO

PICTURES = REPO / "docs" / "images"
MOST_BYTES = 100_000
# Set, the pictures of docs/ui.md are written anew.
WRITES = "TRAINYARD_WRITES_PICTURES"


class Filled(Stacks):
    """Two stacks whose every answer has rows, with texts of somebody else wherever one can be.

    Each text has rows of its own; where there is one place only, all stand in it.
    """

    def __init__(self, *texts: str) -> None:
        super().__init__({"local": True, "dev": None, "away": None})
        self.texts, self.text = texts, " ".join(texts)

    def ask(self, place, *words, of=()):
        if place == "away":
            raise LaunchError(f"no {self.text}", hint=self.text)
        answers = {
            "env show": self._environment(place),
            "env check": self._changes(),
            "cluster ls": [self._live(text) for text in self.texts],
            "data ls": [self._record(name) for name in (*self.texts, "digits")],
            "model ls": [{**self._record("net"), "lineage": {"run": text}} for text in self.texts],
            "data show": {
                **self._record("digits"),
                "url": self.text,
                "folders": [{"name": text, "files": 2, "bytes": 3000} for text in self.texts],
                "kinds": [{"name": ".png", "files": 2, "bytes": 3000}],
            },
            "data diff": {
                "changes": [
                    {"path": text, "kind": "added", "a": None, "b": 2} for text in self.texts
                ]
            },
            "model show": {**self._record("net"), "lineage": {"run": self.text}},
            "doctor": [
                {"part": "uv", "health": "ok", "found": text, "mend": None} for text in self.texts
            ],
            "jobs": [
                {
                    "name": text,
                    "description": text,
                    "launcher": text,
                    "needs": [{"is_there": False, "commands": [[text, text]]}],
                }
                for text in self.texts
            ],
        }
        return answers.get(" ".join(words[:2]), answers.get(words[0], []))

    def _environment(self, place):
        return {
            "stack": place,
            "subscription_id": None if place == "local" else "s",
            "storage": {"folder": self.text},
            "clusters": {text: {**CLUSTER, "compute": text} for text in self.texts},
        }

    def _live(self, text):
        states = ("idle", "running", "preparing", "leaving", "unusable", "preempted")
        return {
            "name": text,
            "size": text,
            "priority": "dedicated",
            "state": text,
            "nodes": 1,
            "min_nodes": 0,
            "max_nodes": 2,
            "idle_s": 120,
            "errors": [text],
            "counts": dict.fromkeys(states, 0),
            "price_per_node_hour": None,
            "currency": None,
        }

    def _record(self, name):
        digest, created = "a" * 64, "2026-01-02T03:04:05Z"
        return {
            "name": name,
            "version": 1,
            "digest": digest,
            "files": 1,
            "bytes": 2,
            "created": created,
        }

    def _changes(self):
        losses = [
            {
                "name": text,
                "type": "a:b:C",
                "change": "deleted",
                "because": [text],
                "costs": text,
                "is_protected": False,
                "is_locked": False,
                "is_allowed": False,
            }
            for text in self.texts
        ]
        return {
            "changes": {
                "losses": losses,
                "updated": [*self.texts],
                "created": [],
                "is_cut_short": False,
            },
            "parts": [
                {"part": "p", "ok": False, "detail": text, "mend": text} for text in self.texts
            ],
            "offers": [{"part": "p", "ok": True, "detail": text} for text in self.texts],
            "quota": [
                {
                    "quota": text,
                    "ok": True,
                    "short": 1,
                    "limit": 1,
                    "used": 1,
                    "needed": 2,
                    "clusters": [text],
                }
                for text in self.texts
            ],
        }


PAGES = (
    *("/clusters", "/datasets", "/environments", "/environments/dev?changes=yes", "/doctor"),
    *("/data/local/digits@1?with=digits@2", "/model/local/net@1", "/jobs", "/environments/away"),
    "/done/7",
)


@pytest.fixture
def filled(monkeypatch):
    """Serve a project of `Filled` stacks."""
    made = []

    def serve(*texts: str) -> Served:
        monkeypatch.setattr("tests.jobs.ui.conftest.Reading", lambda _: Filled(*texts))
        made.append(Served(Path("none")))
        return made[-1]

    yield serve
    for each in made:
        each.end()


def faults_of(page, path: str) -> dict[str, object]:
    """What axe finds on the page, and how far it is wider than the window."""
    found: dict[str, object] = {}
    problems = Axe().run(page).response["violations"]
    if problems:
        named = [(each["id"], [node["html"] for node in each["nodes"]]) for each in problems]
        found[path] = named
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if wide > 0:
        found[f"{path} width"] = wide
    return found


ONE_OF_EACH = (
    *("/clusters", "/datasets", "/environments", "/environments/dev?changes=yes", "/doctor"),
    *("/data/local/digits@1?with=digits@2", "/jobs"),
)


@pytest.mark.parametrize(
    ("paths", "scheme", "width"),
    [
        pytest.param(ONE_OF_EACH, "dark", 390, id="one of each kind"),
        pytest.param(PAGES, "light", 390, id="all-light-390"),
        pytest.param(PAGES, "dark", 1280, id="all-dark-1280"),
    ],
)
def test_pages_with_rows_and_errors_serve_everybody(chromium, filled, paths, scheme, width):
    served = filled("a-name-that-is-as-long-as-names-are-which-somebody-had-a-machine-make")
    context = new_context(chromium, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(served.address)
    page.wait_for_url("**/runs")
    found = {}
    for path in paths:
        page.goto(f"{served.origin}{path}")
        found |= faults_of(page, path)
    context.close()
    assert found == {}


@pytest.mark.parametrize(
    "each_time",
    [[HOSTILE], pytest.param([[text] for text in HOSTILE], marks=pytest.mark.faults)],
    ids=["all at once", "one alone"],
)
def test_nothing_that_others_wrote_into_tables_is_obeyed(chromium, filled, each_time):
    """15 texts, each wherever a stack, a cluster, a version, a part or a quota tells one."""
    context = new_context(chromium)
    page = context.new_page()
    requests, dialogs = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
    ports = set()
    for texts in each_time:
        served = filled(*texts)
        ports.add(f"127.0.0.1:{served.port}")
        page.goto(served.address)
        page.wait_for_url("**/runs")
        typed, refused = typed_of(texts)
        for path in (*PAGES, *typed, refused):
            answer = page.goto(f"{served.origin}{path}")
            is_whole = path not in (PAGES[-1], refused)
            assert (answer.status == 200) == is_whole, (path, texts)
            assert page.evaluate("document.querySelectorAll('script').length") == 1
            assert (
                page.evaluate("document.querySelectorAll('iframe, object, embed, svg').length") == 0
            )
    context.close()
    assert dialogs == []
    assert {each.split("/")[2] for each in requests if each.startswith("http")} == ports


def typed_of(texts) -> tuple[list[str], str]:
    """Addresses with texts that somebody has a person open: pages that show them, and one that is none."""
    asked = "&".join(f"word={quote(text)}" for text in texts)
    shown = [f"/runs?name={quote(texts[0])}", f"/act?place=local&word=run&{asked}"]
    return shown, f"/act?{asked}"


class Parts(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def test_nothing_that_others_wrote_into_tables_is_markup(filled):
    """What a browser would make of it is tried with it in `make faults`."""
    served = filled(*HOSTILE)
    served.enter()
    typed, refused = typed_of(HOSTILE)
    for path in (*PAGES, *typed, refused):
        answer = served.ask(path)
        assert (answer.status == 200) == (path not in (PAGES[-1], refused)), path
        found = Parts(answer.text)
        assert found.tags.count("script") == 1, path
        assert not {"iframe", "object", "embed", "svg", "img"} & {*found.tags}, path
        assert [name for name, _ in found.attributes if name.startswith("on")] == [], path
        places = [
            value.strip().lower()
            for name, value in found.attributes
            if name in ("href", "src", "action", "formaction")
        ]
        assert [each for each in places if each.startswith("javascript:")] == [], path


def write_run(written, *, name: str, rate: float, **changes) -> str:
    """A run with curves of a training, lines and a picture."""
    run = written.add_run(name=name, env={"RATE": str(rate)}, **changes)
    folder = folder_of(written, run)
    told = []
    for step in range(1, 81):
        share = math.exp(-rate * step / 20)
        values = {"loss": 2.3 * share + 0.07, "accuracy": 0.98 - 0.8 * share}
        told += [
            {"step": step, "epoch": step / 10, "split": "train", "name": each, "value": value}
            for each, value in values.items()
        ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in told))
    lines = [
        f"2026-01-02T03:04:{step % 60:02d}.{step:06d}Z epoch {step // 10}  loss {told[2 * step]['value']:.4f}"
        for step in range(60)
    ]
    (folder / "logs" / "rank-00000.log").write_text("\n".join(lines) + "\n")
    return run


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_the_documents_are_of_these_pages(
    written, chromium, monkeypatch, scheme, tmp_path
):
    """Runs, a run and a comparison; with TRAINYARD_WRITES_PICTURES=1 into docs/images."""
    into = PICTURES if os.environ.get(WRITES) else tmp_path
    first = write_run(written, name="digits", rate=1.0)
    second = write_run(written, name="digits", rate=0.4)
    failed = written.add_run(name="digits", ends_as="failed", reason="rank 1: ValueError: no luck")
    (folder_of(written, first) / "outputs").mkdir()
    (folder_of(written, first) / "outputs" / "picture.png").write_bytes(PIXEL)
    assert failed
    # No path of the machine that draws them is in the pictures.
    monkeypatch.chdir(written.folder)
    served = Served(Path("environment.json"))
    context = new_context(chromium, color_scheme=scheme, viewport={"width": 1000, "height": 640})
    page = context.new_page()
    page.goto(served.address)
    page.wait_for_url("**/runs")
    shown = {
        "runs": "/runs",
        "run": f"/runs/file/{first}",
        "compare": f"/compare?run=file/{first}&run=file/{second}",
    }
    faults = {}
    for name, path in shown.items():
        page.goto(f"{served.origin}{path}")
        if name != "runs":
            page.locator(".chart canvas").nth(1).wait_for()
        picture = into / f"ui-{name}-{scheme}.png"
        page.screenshot(path=picture)
        with Image.open(picture) as drawn:
            small = drawn.convert("RGB").quantize(96)
            assert drawn.size == (1000, 640)
            assert len(drawn.convert("RGB").getcolors(1 << 20) or ()) > 50, name
        small.save(picture, optimize=True)
        assert picture.stat().st_size < MOST_BYTES
        faults |= faults_of(page, path)
    context.close()
    served.end()
    assert faults == {}


def test_the_page_of_the_documents_shows_the_pictures():
    text = (REPO / "docs" / "ui.md").read_text()
    named = [
        f"ui-{name}-{scheme}.png"
        for name in ("runs", "run", "compare")
        for scheme in ("light", "dark")
    ]
    assert sorted(named) == sorted(each.name for each in PICTURES.glob("ui-*.png"))
    assert [each for each in named if f"images/{each}" not in text] == []
    assert [each for each in named if (PICTURES / each).stat().st_size >= MOST_BYTES] == []
