"""The pages in a real browser: they show, they act, they follow, and nothing in them is obeyed."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import RunState
from jobs.runs.run_folder import RunEvent, append_event
from tests.busy import HANG_S, Bound
from tests.fakes.launching import FakeEngine
from tests.jobs.ui.conftest import Served, add_running, folder_of, new_context

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    '"><script>alert(1)</script>',
    "'-alert(1)-'",
    "</textarea><script>alert(1)</script>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "${alert(1)}",
    "\x1b]0;title\x07\x1b[2J",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u202eevil\u2066",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "</title><script>alert(1)</script>",
    "<a href=javascript:alert(1)>x</a>",
)
SCRIPTED_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script>'
    '<image href="http://127.0.0.1:PORT/leak"/><rect width="9" height="9"/></svg>'
)


def write_metrics(written, run, *named: str, num_steps: int = 20) -> None:
    lines = [
        json.dumps(
            {"step": step, "epoch": step / 10, "split": "train", "name": name, "value": 1 / step}
        )
        for step in range(1, num_steps + 1)
        for name in named
    ]
    (folder_of(written, run) / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def end(written, run) -> None:
    append_event(
        folder_of(written, run), RunEvent(ts=time_now(), state=RunState.COMPLETED, exit_code=0)
    )


def time_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())


def test_from_the_list_to_a_run_its_curves_lines_and_outputs(written, page, served):
    run = written.add_run(name="digits")
    write_metrics(written, run, "loss", "accuracy")
    outputs = folder_of(written, run) / "outputs"
    (outputs / "deep").mkdir(parents=True)
    (outputs / "picture.png").write_bytes(PIXEL)
    (outputs / "deep" / "model.pt").write_bytes(b"weights")
    page.goto(f"{served.origin}/runs")

    page.get_by_role("link", name=run).click()

    assert page.get_by_role("heading", level=1).inner_text() == f"digits {run}"
    page.wait_for_selector(".chart canvas")
    assert page.locator(".chart").count() == 2
    assert page.get_by_role("img", name="train loss by epoch; last 0.05").is_visible()
    assert page.locator("#log .line").inner_text() == "[0] hello"
    page.get_by_text("all lines are here").wait_for()
    picture = page.get_by_role("img", name="picture.png")
    picture.scroll_into_view_if_needed()
    assert picture.evaluate("each => each.decode().then(() => each.naturalWidth)") == 1
    with page.expect_download() as download:
        page.get_by_role("link", name="deep/model.pt").click()
    assert Path(download.value.path()).read_bytes() == b"weights"


def test_a_run_that_is_on_is_followed_to_its_end(written, supervised, page, served):
    run = add_running(written, supervised, name="long")
    page.goto(f"{served.origin}/runs/file/{run}")
    page.locator("#now .running").wait_for()
    log = folder_of(written, run) / "logs" / "rank-00000.log"
    for number in range(3):
        with log.open("a") as lines:
            lines.write(f"{time_now()[:-8]}.{number:06d}Z live {number}\n")
        page.get_by_text(f"live {number}").wait_for()
    now = time_now()[:-8]
    with log.open("a") as lines:
        lines.writelines(f"{now}.{number + 3:06d}Z fast {number}\n" for number in range(200))
    page.get_by_text("fast 199").wait_for()
    texts = page.locator("#log .line").all_text_contents()  # those out of sight, too
    assert [each.split()[-1] for each in texts if "fast" in each] == [
        str(each) for each in range(200)
    ]
    write_metrics(written, run, "loss")
    page.wait_for_selector(".chart canvas")
    buttons = page.locator("#actions button")
    assert buttons.all_inner_texts() == ["Cancel", "Fetch"]
    outputs = folder_of(written, run) / "outputs"
    outputs.mkdir()
    (outputs / "model.pt").write_bytes(b"weights")
    end(written, run)
    page.locator("#now .completed").wait_for()
    page.get_by_text("all lines are here").wait_for()
    page.get_by_role("link", name="model.pt").wait_for()
    assert buttons.all_inner_texts() == ["Run again", "Fetch", "Keep"]


def test_runs_are_filtered_compared_and_reached_by_keys(written, page, served):
    first, second = written.add_run(name="first"), written.add_run(name="second")
    written.add_run(name="third", ends_as="failed")
    write_metrics(written, first, "loss")
    write_metrics(written, second, "loss", num_steps=5)
    page.goto(f"{served.origin}/runs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == second
    page.keyboard.press("/")
    page.keyboard.type("second")
    page.keyboard.press("Enter")
    page.wait_for_url("**name=second**")
    assert page.locator("#runs tbody tr").count() == 1
    page.goto(f"{served.origin}/runs?state=failed")
    assert page.locator("#runs tbody td:nth-child(3)").all_inner_texts() == ["third"]
    page.goto(f"{served.origin}/runs?sort=name")
    names = page.locator("#runs tbody td:nth-child(3)").all_inner_texts()
    assert names == ["first", "second", "third"]
    page.get_by_label(f"compare {first}").check()
    page.get_by_label(f"compare {second}").check()
    page.get_by_role("button", name="Compare the ticked").click()
    page.wait_for_selector(".chart canvas")
    assert page.get_by_role("heading", level=1).inner_text() == "2 runs compared"
    assert page.locator(".chart .u-legend .u-series").count() == 3


def test_a_comparison_of_runs_that_are_on_is_followed_to_their_end(
    written, supervised, page, served
):
    over, on = written.add_run(name="over"), add_running(written, supervised, name="on")
    for run in (over, on):
        write_metrics(written, run, "loss", num_steps=2)
    page.goto(f"{served.origin}/compare?run=file/{over}&run=file/{on}")
    page.get_by_role("img", name="train loss by epoch; last").wait_for()
    last = page.locator("#now tbody tr:nth-child(2) td").last
    assert last.inner_text() == "0.5"
    link = page.get_by_role("link", name=on)
    link.focus()
    write_metrics(written, on, "loss", num_steps=4)
    page.get_by_role("img", name=f"{on}: 0.25").wait_for()
    page.locator("#now td", has_text="0.25").wait_for()
    end(written, on)
    page.wait_for_function("() => !document.querySelector('[data-again], [data-live]')")
    states = page.locator("#now .state").all_inner_texts()
    assert states == ["completed", "completed"]
    # What a person was at is where it was.
    assert link.evaluate("each => each === document.activeElement")


def test_a_comparison_says_what_keeps_it_from_going_on(written, supervised, page, served):
    run = add_running(written, supervised)
    write_metrics(written, run, "loss")
    page.goto(f"{served.origin}/compare?run=file/{run}")
    page.wait_for_selector(".chart canvas")
    trouble = page.locator("#trouble")
    assert trouble.inner_text() == ""
    record = folder_of(written, run) / "run.json"
    kept = record.read_text()
    record.write_text("{")
    page.get_by_text("is damaged").first.wait_for()
    record.write_text(kept)
    page.wait_for_function("() => !document.getElementById('trouble').textContent")
    served.end()
    page.locator("#trouble", has_text="has `launch ui` ended?").wait_for()
    page.goto("about:blank")
    page.problems.clear()


def test_charts_follow_the_width_and_the_scheme_and_draw_a_step_once(written, page, served):
    """A phone that is turned, dark after light, and a step that was made again."""
    page.add_init_script(
        """window.colours = [];
        const { fillText } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.fillText = function (...words) {
          window.colours.push(this.fillStyle);
          return fillText.apply(this, words);
        };"""
    )
    run = written.add_run()
    write_metrics(written, run, "loss")
    page.goto(f"{served.origin}/runs/file/{run}")
    page.wait_for_selector(".chart canvas")
    for width in (390, 800):
        page.set_viewport_size({"width": width, "height": 700})
        page.wait_for_function(
            """() => {
              const box = document.querySelector(".chart").clientWidth;
              const drawn = document.querySelector(".chart .uplot").clientWidth;
              return drawn <= box && drawn > box - 40;
            }"""
        )
    for scheme, ink in (("light", "#1b1b1f"), ("dark", "#e8e8ea")):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function("ink => window.colours.at(-1) === ink", arg=ink)
    told = page.evaluate("aligned([{ at: [1, 2, 3, 2], values: [1, 2, 3, 4] }])")
    assert told == [[1, 2, 3], [1, 4, 3]]
    both = page.evaluate("aligned([{ at: [2, 1], values: [1, 2] }, { at: [3], values: [null] }])")
    assert both == [[1, 2, 3], [2, 1, None], [None, None, None]]


# Where the first line of a chart of series from 0 to 10 has ink, in steps of a half.
INK = """series => {
  document.documentElement.style.setProperty("--series-0", "#ff0000");
  const box = document.createElement("figure");
  document.body.append(box);
  const ends = { name: "ends", at: [0, 10], values: [0, 1] };
  const drawn = drawChart({ title: "t", axis: "step", series: [...series, ends] }, box, 600);
  return new Promise((tell) => setTimeout(() => {
    const inks = [];
    for (let place = 0; place <= 10; place += 0.5) {
      const left = Math.round(drawn.valToPos(place, "x", true)) - 3;
      const { data } = drawn.ctx.getImageData(left, drawn.bbox.top, 7, drawn.bbox.height);
      for (let at = 0; at < data.length; at += 4) {
        if (data[at] > 200 && data[at + 1] < 60 && data[at + 2] < 60 && data[at + 3] > 100) {
          inks.push(place);
          break;
        }
      }
    }
    box.remove();
    tell(inks);
  }, 50));
}"""


def test_a_chart_has_gaps_where_there_is_no_number_and_draws_what_stands_alone(
    written, page, served
):
    """Places of another run make no gap, and hide none. Steps beyond a million are labelled in full."""
    run = written.add_run()
    write_metrics(written, run, "loss")
    page.goto(f"{served.origin}/runs/file/{run}")
    page.wait_for_selector(".chart canvas")

    def inked(at, values, *others):
        one, *rest = (
            {"name": f"s{number}", "at": places, "values": row}
            for number, (places, row) in enumerate([(at, values), *others])
        )
        return page.evaluate(INK, [one, *rest])

    other = ([1, 2, 3, 4, 5, 6, 7, 8, 9], [0.9] * 9)
    assert inked([5], [0.5]) == [5]
    assert inked([1, 3, 5], [None, 0.5, None]) == [3]
    assert inked([1, 3, 5, 7, 9], [0.5, None, 0.4, None, 0.6]) == [1, 5, 9]
    assert inked([3, 6], [0.2, 0.4], other) == [each / 2 for each in range(6, 13)]
    line = [each / 2 for each in range(5)]
    assert inked([0, 2, 4, 6, 8], [0.1, 0.2, None, 0.3, 0.4]) == [*line, *(6, 6.5, 7, 7.5, 8)]
    assert inked([0, 2, 4, 6, 8], [0.1, 0.2, None, 0.3, 0.4], other) == [
        *line,
        *(6, 6.5, 7, 7.5, 8),
    ]
    labels = "drawChart({ title: '', axis: 'step', series: [] }, document.body, 600).axes[0].values"
    told = page.evaluate(f"{labels}(null, [1234561, 1234562, 0.1 + 0.2, 1e-7])")
    assert told == ["1234561", "1234562", "0.3", "1e-7"]


def test_a_person_with_a_keyboard_gets_from_the_list_into_a_run_and_its_log(written, page, served):
    run = written.add_run(name="digits")
    written.add_run(name="other")
    page.goto(f"{served.origin}/runs")

    def focused(of: str):
        return page.evaluate(f"document.activeElement.{of}")

    def tab_to(text: str):
        for _ in range(40):
            page.keyboard.press("Tab")
            if focused("innerText") == text:
                return
        raise AssertionError(text)

    page.keyboard.press("Tab")
    assert focused("innerText") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert focused("name") == "place"
    page.keyboard.press("Tab")
    page.keyboard.type("digits")
    page.keyboard.press("Enter")
    page.wait_for_url("**name=digits**")
    tab_to(run)
    # What has the focus is seen to have it.
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{run}")
    tab_to("Run again")
    page.keyboard.press("Enter")
    page.wait_for_url("**/act?**")
    tab_to("Do it")
    page.go_back()
    page.locator("#log .line").wait_for()
    for _ in range(40):
        if focused("id") == "log":
            break
        page.keyboard.press("Tab")
    assert focused("id") == "log"
    page.go_forward()
    tab_to("Do it")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/runs/file/" in url and not url.endswith(run))
    assert len(FakeEngine.submitted) == 1


def test_an_action_is_shown_asked_and_done(written, page, served):
    job = written.write_job("name: asked\nimage: none\ncommand: [python, -V]\n")
    page.goto(f"{served.origin}/jobs")
    page.get_by_label("Job").fill(job)
    page.get_by_label("Changes").fill("env.A=b\nnodes=2")
    page.get_by_role("button", name="Show the plan").click()
    typed = f"launch run --set=env.A=b --set=nodes=2 --env={written.env_file} {job}"
    assert page.locator(".command").inner_text() == typed
    assert FakeEngine.submitted == []
    page.get_by_role("button", name="Do it").click()
    page.wait_for_url("**/runs/file/**")
    assert FakeEngine.submitted[0][0].spec.env == {"A": "b"}
    page.get_by_role("button", name="Run again").click()
    page.locator("#confirm").click()
    page.wait_for_url("**/runs/file/**")
    assert len(FakeEngine.submitted) == 2
    page.goto(f"{served.origin}/act?word=rm&word=last")
    assert "no page does `launch rm last`" in page.get_by_role("alert").inner_text()
    page.problems.clear()  # the browser tells of the answer 400


def test_an_action_that_is_under_way_says_so_until_it_ends(written, page, served, monkeypatch):
    is_over, run = threading.Event(), written.add_run()
    monkeypatch.setattr("jobs.ui.doing.SHORT_S", 0.01)
    monkeypatch.setattr("jobs.ui.actions.do", lambda line: is_over.wait(HANG_S) and "it is kept")
    page.goto(f"{served.origin}/act?place=file&word=keep&word={run}")
    page.locator("#confirm").click()
    doing = page.locator("#doing")
    doing.get_by_text("Under way").wait_for()
    assert Axe().run(page).response["violations"] == []
    page.get_by_role("link", name="Runs").last.focus()
    page.evaluate("window.isHere = true")
    page.wait_for_function("before => doing.innerText !== before", arg=doing.inner_text())
    # What a person was at is where it was.
    assert page.evaluate("window.isHere && document.activeElement.textContent") == "Runs"
    is_over.set()
    page.get_by_role("heading", name="Done").wait_for()
    assert page.locator("pre").inner_text() == "it is kept"


@pytest.mark.parametrize("how", ["started", "refused"])
def test_an_action_that_is_over_shows_what_came_of_it(written, page, served, monkeypatch, how):
    is_over, run = threading.Event(), written.add_run()
    monkeypatch.setattr("jobs.ui.doing.SHORT_S", 0.01)
    outcome = {"started": [{"id": run}], "refused": []}[how]

    def do(line):
        is_over.wait(HANG_S)
        if not outcome:
            raise LaunchError("no luck")
        return outcome[0]

    monkeypatch.setattr("jobs.ui.actions.do", do)
    page.goto(f"{served.origin}/act?place=file&word=rerun&word={run}")
    page.locator("#confirm").click()
    page.locator("#doing").wait_for()
    is_over.set()
    if how == "started":
        page.wait_for_url(f"**/runs/file/{run}")
        page.locator("#now .completed").wait_for()
    else:
        page.get_by_role("alert").get_by_text("no luck").wait_for()
        assert page.locator("#doing").count() == 0
        page.problems.clear()  # the browser tells of the answer 400


def test_what_is_not_there_is_said(written, page, served):
    page.goto(f"{served.origin}/runs/file/nope")
    assert "there is no run `nope`" in page.get_by_role("alert").inner_text()
    page.goto(f"{served.origin}/runs/elsewhere/last")
    assert "there is no stack `elsewhere` here" in page.get_by_role("alert").inner_text()
    page.goto(f"{served.origin}/runs?since=x")
    assert "--since" in page.locator(".problem").inner_text()
    page.problems.clear()


def test_lines_that_cannot_be_chosen_and_a_folder_that_is_removed_are_told(
    written, supervised, page, served, tmp_path
):
    run = add_running(written, supervised)
    page.goto(f"{served.origin}/runs/file/{run}")
    page.locator("#log .line").first.wait_for()
    page.get_by_label("Lines that match").fill("(")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("`--grep (` is not a regular expression").wait_for()
    page.get_by_label("Lines that match").fill("hel+o")
    page.get_by_role("button", name="Show", exact=True).click()
    page.locator("#log .line").first.wait_for()
    assert page.locator("#log .line").all_inner_texts() == ["[0] hello"]
    assert [each for each in page.problems if "400 (Bad Request)" not in each] == []
    # All at once, as a run without its supervisor's lock would be one that was over.
    folder_of(written, run).rename(tmp_path / "removed")
    page.get_by_text("no more lines").wait_for()
    # Who comes later, or whose connection broke off meanwhile, is told the same.
    with page.expect_response("**/lines?*"):
        page.locator("#choose button").click()
    page.get_by_text(f"no more lines: there is no run `{run}`").wait_for()
    assert page.get_by_role("heading", level=1).is_visible()
    page.goto(f"{served.origin}/runs")
    page.problems.clear()


def test_a_server_that_ended_is_named_and_the_next_one_lets_the_browser_in(
    written, supervised, page, served
):
    run = add_running(written, supervised)
    page.goto(f"{served.origin}/runs/file/{run}")
    page.locator("#log .line").first.wait_for()
    served.end()
    page.get_by_text("connecting again").wait_for()
    again = Served(written.env_file, port=served.port)
    try:
        for each in ("#told", "#trouble"):
            page.locator(each, has_text="has `launch ui` ended?").wait_for()
        page.goto(again.address)
        page.wait_for_url("**/runs")
        assert page.locator("#runs tbody tr").count() == 1
    finally:
        page.goto("about:blank")
        again.end()
    page.problems.clear()


@pytest.mark.parametrize("num_tabs", [5, 8, pytest.param(32, marks=pytest.mark.faults)])
def test_many_tabs_are_all_told_what_is_written(written, supervised, page, served, num_tabs):
    """A browser opens six connections to a host; all tabs are in view here, as no window hides one."""
    run = add_running(written, supervised)
    tabs = [page.context.new_page() for _ in range(num_tabs)]
    for tab in tabs:
        tab.goto(f"{served.origin}/runs/file/{run}")
    write_line(written, run, "for all")
    for tab in tabs:
        tab.get_by_text("for all").wait_for()
        assert "connecting again" not in tab.locator("#told").inner_text()
    tabs[-1].goto(f"{served.origin}/runs")
    assert tabs[-1].locator("#runs tbody tr").count() == 1


def test_a_tab_that_is_hidden_leaves_its_connection_and_misses_no_line(
    written, supervised, page, served
):
    run = add_running(written, supervised)
    page.goto(f"{served.origin}/runs/file/{run}")
    page.locator("#log .line").first.wait_for()
    with page.expect_event("requestfailed", lambda request: "/lines" in request.url):
        look_away(page, is_away=True)
    write_line(written, run, "meanwhile")
    with page.expect_request(lambda request: "/lines" in request.url and "last=" in request.url):
        look_away(page, is_away=False)
    page.get_by_text("meanwhile").wait_for()
    assert page.locator("#log .line").all_inner_texts() == ["[0] hello", "[0] meanwhile"]


def look_away(page, *, is_away: bool) -> None:
    """Have the page believe that its tab was hidden or shown: a headless browser hides none."""
    page.evaluate(
        """isAway => {
          Object.defineProperty(document, "hidden", { get: () => isAway, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_away,
    )


def write_line(written, run, text: str) -> None:
    with (folder_of(written, run) / "logs" / "rank-00000.log").open("a") as log:
        log.write(f"{time_now()} {text}\n")


def test_of_many_charts_those_in_view_are_asked_for(written, page, served):
    run = written.add_run()
    write_metrics(written, run, *(f"m{number:02d}" for number in range(60)))
    asked = []
    page.on("request", lambda request: "/curves" in request.url and asked.append(request.url))
    page.goto(f"{served.origin}/runs/file/{run}")
    page.wait_for_selector(".chart canvas")
    assert page.locator(".chart").count() == 60
    assert "m59" not in "".join(asked)
    page.locator(".chart").last.scroll_into_view_if_needed()
    page.get_by_role("img", name="train m59 by epoch; last 0.05").wait_for()
    assert "m59" in "".join(asked)
    assert "m30" not in "".join(asked)


@pytest.mark.parametrize("kind", ["of runs", "of stacks"])
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.faults)])
def test_every_page_serves_everybody(written, chromium, served, scheme, kind):
    run = written.add_run(name="digits", ends_as="failed", reason="no luck")
    write_metrics(written, run, "loss")
    place = f"/runs/file/{run}"
    paths = {
        "of runs": [
            *("/runs", place, f"/compare?run=file/{run}", f"{place}/diff?with={run}"),
            *(f"/act?place=file&word=cancel&word={run}", "/act?word=rm"),
        ],
        "of stacks": [
            *("/jobs", "/datasets", "/clusters", "/environments", "/environments/file", "/doctor"),
        ],
    }[kind]
    context = new_context(chromium, color_scheme=scheme, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(served.address)
    page.wait_for_url("**/runs")
    found = {}
    for path in paths:
        page.goto(f"{served.origin}{path}")
        if path == place or path.startswith("/compare"):
            page.wait_for_selector("canvas")
        if problems := Axe().run(page).response["violations"]:
            found[path] = [
                (each["id"], [node["html"] for node in each["nodes"]]) for each in problems
            ]
        # A phone scrolls wide tables in their boxes, never the page.
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if wide > 0:
            found[f"{path} width"] = wide
    context.close()
    assert found == {}


@pytest.fixture
def elsewhere():
    """A port at which somebody waits for what a picture tells him."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


@pytest.mark.parametrize(
    "each_time",
    [[HOSTILE], [[text] for text in HOSTILE]],
    ids=["all at once", "one alone"],
)
def test_nothing_that_others_wrote_is_obeyed(written, page, served, elsewhere, each_time):
    """15 texts, each as a name, reason, tag, line, metric and file: 90 of them; and scripted pictures."""
    requests, runs = [], []
    leak = f"127.0.0.1:{elsewhere.getsockname()[1]}"
    scripted = SCRIPTED_SVG.replace("127.0.0.1:PORT", leak)
    page.on("request", lambda request: requests.append(request.url))
    for number, texts in enumerate(each_time):
        text = " ".join(texts)
        tags = {f"tag{at}": each for at, each in enumerate(texts)}
        run = written.add_run(name=f"n{number}", ends_as="failed", reason=text, tags=tags)
        runs.append(run)
        folder = folder_of(written, run)
        record = folder / "run.json"
        name = json.dumps(f"n{number}")
        record.write_text(record.read_text().replace(name, json.dumps(text)))
        lines = "".join(f"2026-01-02T03:04:05.000006Z {each}\n" for each in texts)
        (folder / "logs" / "rank-00000.log").write_text(lines)
        write_metrics(written, run, *texts)
        outputs = folder / "outputs"
        outputs.mkdir()
        (outputs / "picture.svg").write_text(scripted)
        (outputs / "picture.png").write_text(scripted)
        for each in texts:
            (outputs / each.replace("/", "_").replace("\x00", "")).write_text(each)
        error = json.loads((folder / "error.json").read_text())
        error |= {"message": text, "traceback": text, "cause": text}
        (folder / "error.json").write_text(json.dumps(error))
        page.goto(f"{served.origin}/runs/file/{run}")
        page.wait_for_selector("canvas")
        page.locator("#log .line").first.wait_for()
        shown = page.locator("#log .line").all_text_contents()
        assert shown == [f"[0] {each}" for each in texts]
        assert page.evaluate("document.querySelectorAll('script').length") == 2
        assert page.evaluate("document.querySelectorAll('iframe, object, embed, svg').length") == 0
    page.goto(f"{served.origin}/runs")
    assert page.locator("#runs tbody tr").count() == len(each_time)
    page.goto(f"{served.origin}/runs/file/{run}/outputs/picture.svg")
    assert page.evaluate("document.documentElement.tagName") == "svg"
    page.goto(f"{served.origin}/runs/file/{run}/outputs/picture.png")
    compared = "&".join(f"run=file/{each}" for each in runs)
    page.goto(f"{served.origin}/compare?{compared}")
    page.locator(".chart").first.scroll_into_view_if_needed()
    page.wait_for_selector("canvas")
    assert page.locator("tbody tr").count() == len(each_time)
    # The browser tells of the picture's own request, too, which the policy stops.
    hosts = {each.split("/")[2] for each in requests if each.startswith("http")}
    assert hosts == {f"127.0.0.1:{served.port}", leak}
    with pytest.raises(BlockingIOError):
        elsewhere.accept()
    # What the browser refused of the SVG, which was opened by itself, and of the icon it asked for.
    refused = [each for each in page.problems if "/outputs/picture" in each or "/favicon" in each]
    said = ("Content Security Policy", "Blocked script execution", "BLOCKED_BY_RESPONSE")
    assert [each for each in refused if not any(word in each for word in said)] == []
    assert [each for each in page.problems if each not in refused] == []
    page.problems.clear()


def test_a_way_out_of_the_outputs_is_not_found(written, served):
    run = written.add_run()
    outputs = folder_of(written, run) / "outputs"
    outputs.mkdir()
    secret = written.folder / "secret.png"
    secret.write_bytes(PIXEL)
    (outputs / "link.png").symlink_to(secret)
    served.enter()
    for path in (
        "link.png",
        "../record.json",
        "%2e%2e/record.json",
        f"/{secret}",
        "..%2frecord.json",
    ):
        assert served.ask(f"/runs/file/{run}/outputs/{path}").status == 404, path
    assert "link.png" not in served.ask(f"/runs/file/{run}").text


def test_lines_are_in_the_page_soon_after_they_are_written(written, supervised, page, served):
    """At 200 lines a second; how soon is a figure of docs/benchmarks/ui.md."""
    run = add_running(written, supervised)
    page.goto(f"{served.origin}/runs/file/{run}")
    page.locator("#log .line").first.wait_for()
    log = folder_of(written, run) / "logs" / "rank-00000.log"

    def write() -> None:
        for number in range(200):
            with log.open("a") as lines:
                lines.write(f"{time_now()[:-8]}.{number:06d}Z fast {number}\n")
            time.sleep(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    writer.join()
    bound = Bound(5)
    while page.get_by_text("fast 199").count() == 0:
        bound.check()
    texts = page.locator("#log .line").all_text_contents()  # those out of sight, too
    assert [each.split()[-1] for each in texts if "fast" in each] == [
        str(each) for each in range(200)
    ]
