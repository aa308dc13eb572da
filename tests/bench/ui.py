"""The pages of `launch ui`, by a process of it and Debian's chromium: lines, lists, charts, memory."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

from jobs.ui.pages import PAGE_SIZE
from tests.bench.listing import fill
from tests.bench.table import Row
from tests.bench.workspace import launch_program, local_environment

# What the issue asks for.
LINE_S, LIST_S, CHARTS_S, FRAME_MS, SCRIPT_BYTES, SERVER_MB = 1.0, 0.5, 1.5, 200, 150_000, 80
NUM_RUNS, NUM_CHARTS, NUM_POINTS = 10_000, 100, 100_000
LINES_A_SECOND, NUM_LINES, NUM_BREAKS = 200, 4_000, 50
WRITER = f"""
import time
for number in range({NUM_LINES}):
    print("line", number, repr(time.time()), flush=True)
    time.sleep({1 / LINES_A_SECOND})
time.sleep(5)
"""
# In the page: when each line came, and how long each frame took.
WATCH = """
window.frames = []; window.came = [];
(function frame(before) {
  requestAnimationFrame((now) => { window.frames.push(now - before); frame(now); });
})(performance.now());
new MutationObserver((changes) => {
  for (const change of changes) for (const node of change.addedNodes) {
    const found = /line (\\d+) (\\d+\\.\\d+)/.exec(node.textContent || "");
    if (found && node.className === "line") window.came.push([Number(found[2]), Date.now() / 1000]);
  }
}).observe(document, { childList: true, subtree: true });
"""


class Ui:
    """A `launch ui` of an environment, and its memory at the end."""

    def __init__(self, project: Path, environment: Path) -> None:
        words = [str(launch_program(project)), "ui", "--no-browser", "--env", str(environment)]
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        self.origin = self.address.partition("/?")[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()

    @property
    def most_mb(self) -> float:
        """The most memory that it has had so far."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024 / 1e6


@contextmanager
def browsing(ui: Ui) -> Iterator[Any]:
    """A page of a browser that the pages let in."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(ui.address)
        page.wait_for_url("**/runs")
        page.add_init_script(WATCH)
        yield page
        browser.close()


def goal(words: str, found: float, most: float, unit: str) -> Row:
    """A row whose peer is what was asked for."""
    return Row(
        goal=words,
        ours=f"{found:,.4g} {unit}",
        peer=f"the goal's {most:,g} {unit}",
        ratio=found / most,
        at_most=1.0,
    )


def line_rows(project: Path, rounds: int) -> list[Row]:
    """Follow a job that writes lines, in the page and by connections that break off."""
    del rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = local_environment(folder, processes_per_node=1)
        run = start(project, folder, environment, WRITER)
        with Ui(project, environment) as ui, browsing(ui) as page:
            page.goto(f"{ui.origin}/runs/file/{run}")
            cookie = "; ".join(f"{each['name']}={each['value']}" for each in page.context.cookies())
            numbers = broken_off(ui, run, cookie)
            page.get_by_text("all lines are here").wait_for()
            came = page.evaluate("window.came")
            memory_mb = ui.most_mb
    # Lines of before the page was there are as old as they are.
    first_s = min(came_s for _, came_s in came)
    ages = sorted(came_s - written_s for written_s, came_s in came if written_s > first_s)
    # A page begins with the last lines; of those none may be missing.
    lost = NUM_LINES - min(numbers) - len(set(numbers))
    twice = len(numbers) - len(set(numbers))
    return [
        goal(
            f"p95 from line written to line in the page, {LINES_A_SECOND} lines/s",
            ages[int(len(ages) * 0.95)],
            LINE_S,
            "s",
        ),
        Row(
            goal=f"lines lost and lines repeated over {NUM_BREAKS} broken connections",
            ours=f"{lost} and {twice} of {NUM_LINES - min(numbers):,}",
            peer="none",
            ratio=float(lost + twice),
            at_most=0.0,
        ),
        goal("server's memory while lines come", memory_mb, SERVER_MB, "MB"),
    ]


def broken_off(ui: Ui, run: str, cookie: str) -> list[int]:
    """Read the run's lines, leaving NUM_BREAKS times in the midst; gives the lines' numbers."""
    numbers: list[int] = []
    last, num_breaks = "", 0
    while True:
        connection = http.client.HTTPConnection(ui.origin.removeprefix("http://"), timeout=120)
        headers = {"cookie": cookie} | ({"last-event-id": last} if last else {})
        connection.request("GET", f"/runs/file/{run}/lines", headers=headers)
        answer = connection.getresponse()
        for fields in events_of(answer):
            if fields.get("event") == "over":
                return numbers
            if "id" in fields:
                last = fields["id"]
                told = [text.split() for _, _, text in json.loads(fields["data"])]
                numbers += [int(words[1]) for words in told if words[0] == "line"]
                if num_breaks < NUM_BREAKS:
                    num_breaks += 1
                    break
        connection.close()


def events_of(answer: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    """Yield the fields of each event of a stream."""
    fields: dict[str, str] = {}
    for line in answer:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        else:
            yield fields
            fields = {}


def list_rows(project: Path, rounds: int) -> list[Row]:
    """Open the list of NUM_RUNS runs, the first page of a server that has just been started."""
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = local_environment(folder)
        fill(str(launch_program(project)), environment, folder, NUM_RUNS)
        for _ in range(rounds):
            with Ui(project, environment) as ui, browsing(ui) as page:
                assert page.locator("#runs tbody tr").count() == PAGE_SIZE
                timing = "performance.getEntriesByType('navigation')[0].loadEventEnd"
                taken.append(page.evaluate(timing) / 1000)
    return [
        goal(
            f"first list of {NUM_RUNS:,} runs, from request to page shown",
            median(taken),
            LIST_S,
            "s",
        )
    ]


def chart_rows(project: Path, rounds: int) -> list[Row]:
    """Open a run with NUM_CHARTS curves of NUM_POINTS, scroll through them, have all be read."""
    del rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = local_environment(folder, processes_per_node=1)
        run = start(project, folder, environment, "pass", is_waited_for=True)
        write_metrics(folder / "workspace" / "runs" / run / "metrics.jsonl")
        with Ui(project, environment) as ui, browsing(ui) as page:
            page.goto(f"{ui.origin}/runs/file/{run}", wait_until="commit")
            page.wait_for_function(
                """() => {
                  const charts = [...document.querySelectorAll(".chart")];
                  const inView = charts.filter((each) => each.getBoundingClientRect().top < innerHeight);
                  return inView.length && inView.every((each) => each.querySelector("canvas"));
                }""",
                polling="raf",
            )
            usable_s = page.evaluate("performance.now() / 1000")
            height = page.evaluate("document.documentElement.scrollHeight")
            for _ in range(0, height, 400):
                page.mouse.wheel(0, 400)
                page.wait_for_timeout(50)
            page.wait_for_function(
                f"() => document.querySelectorAll('.chart canvas').length === {NUM_CHARTS}"
            )
            longest_ms = page.evaluate("Math.max(...window.frames)")
            page.wait_for_function("() => !document.querySelector('#charts[data-read]')", timeout=0)
            memory_mb = ui.most_mb
    charts = f"{NUM_CHARTS} charts of {NUM_POINTS:,} points"
    return [
        goal(f"{charts}: from request to the charts in view drawn", usable_s, CHARTS_S, "s"),
        goal(f"{charts}: longest frame, scrolling through all", longest_ms, FRAME_MS, "ms"),
        goal(f"{charts}: server's memory once all were read", memory_mb, SERVER_MB, "MB"),
        goal("script of a page", float(script_bytes(project)), SCRIPT_BYTES, "bytes"),
    ]


def script_bytes(project: Path) -> int:
    """Count the bytes of all scripts that pages load."""
    return sum(each.stat().st_size for each in (project / "jobs/ui/static").rglob("*.js"))


def write_metrics(path: Path) -> None:
    """Write curves that fall, all metrics of a step together."""
    with path.open("w") as file:
        for step in range(1, NUM_POINTS + 1):
            head = f'{{"step": {step}, "epoch": {step / 1000}, "split": "train", "name": "m'
            tail = f'", "value": {1 / step:.6f}}}\n'
            file.write("".join(f"{head}{number:02d}{tail}" for number in range(NUM_CHARTS)))


def start(
    project: Path, folder: Path, environment: Path, program: str, *, is_waited_for: bool = False
) -> str:
    """Start a job of one rank that runs this program; gives the run's id."""
    job = folder / "job.yaml"
    command = ["python", "-c", program]
    job.write_text(json.dumps({"name": "bench", "image": "pytorch", "command": command}))
    words = [str(launch_program(project)), "run", str(job), "--env", str(environment), "-d"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    run = done.stdout.split()[0]
    if is_waited_for:
        waited = [words[0], "wait", run, "--env", str(environment)]
        subprocess.run(waited, check=True, stdout=subprocess.DEVNULL)
    return run


def import_rows(project: Path, rounds: int) -> list[Row]:
    """`import trainyard` against Python that imports nothing, in turn."""
    from tests.bench.pairs import Command, median_cpu_s, time_in_turn

    del project
    commands = [
        Command(name=name, argv=[sys.executable, "-P", "-c", code])
        for name, code in (("bare", "pass"), ("trainyard", "import trainyard"))
    ]
    timings = time_in_turn(commands, rounds=3 * rounds)
    cpu_s = {name: median_cpu_s(found) for name, found in timings.items()}
    beyond_ms = max(cpu_s["trainyard"] - cpu_s["bare"], 0.0) * 1000
    return [goal("`import trainyard`: processor time beyond Python's own", beyond_ms, 60, "ms")]
