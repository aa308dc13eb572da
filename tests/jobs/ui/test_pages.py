"""What pages show of which environment, whatever one of them answers."""

from __future__ import annotations

import json
import os
import re
import threading
from concurrent.futures import wait
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from starlette.datastructures import QueryParams
from starlette.requests import Request

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.contracts.spec import RunHandle
from jobs.runs.failure import RankReport, root_cause
from jobs.ui import one_run, reading
from jobs.ui.curves import Curves
from jobs.ui.doing import Doings
from jobs.ui.pages import PAGE_SIZE, Pages
from jobs.ui.reading import Late, Reading, Told, _Asked, alike
from tests.busy import HANG_S, wait_until
from tests.fakes.launching import FakeEngine


def asked(query: str = "", raw_path: bytes = b"", **params: str) -> Request:
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    return Request(
        {**scope, "query_string": query.encode(), "path_params": params, "raw_path": raw_path}
    )


class Stacks(Reading):
    """A project with stacks that are up or not; each answers a verb by what the test says."""

    def __init__(self, up, **answers):
        super().__init__(None, Late(patience_s=5))
        self.up, self.answers, self.heard = up, answers, []

    def once(self):
        return self

    def stacks(self):
        return [{"stack": name, "up": up} for name, up in self.up.items()]

    def ask(self, place, *words, of=()):
        self.heard.append([place, *words, *of])
        answer = self.answers.get(place, {}).get(words[0], [])
        if isinstance(answer, Exception):
            raise answer
        return answer


def run(name, **more):
    return {
        "id": f"20260102-030405-{name:0>4}",
        "name": name,
        "state": "completed",
        "cluster": "cpu",
        "cost": None,
        "progress": None,
        "nodes": 1,
        "world_size": 2,
        "created": "2026-01-02T03:04:05.000006Z",
        "started": None,
        "ended": None,
        "reason": None,
        **more,
    }


class Cells(HTMLParser):
    """The texts of a page's cells, a list a row."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.is_within = [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.is_within = True
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.is_within = False

    def handle_data(self, data):
        if self.is_within:
            self.rows[-1][-1] += data.strip()


def text_of(answer) -> str:
    return answer.body.decode()


def rows_of(answer) -> list[list[str]]:
    return Cells(text_of(answer)).rows


def pages_of(stacks: Reading) -> Pages:
    return Pages(stacks, Curves(), Doings())


def test_stacks_of_which_nobody_knows_whether_they_are_up_are_shown():
    stacks = Stacks(
        {"local": True, "old": False, "dev": None, "prod": None},
        local={"ls": [run("here")]},
        old={"ls": [run("gone")]},
        dev={"ls": [run("azure")]},
        prod={"ls": EnvironmentFailure("no network", hint="plug it in")},
    )
    assert stacks.places() == ["local", "dev", "prod"]
    assert Stacks({"dev": None, "local": True}).places() == ["local", "dev"]
    answer = pages_of(stacks).runs(asked())
    assert [row[2] for row in rows_of(answer)[1:]] == ["here", "azure"]
    assert "no network" in text_of(answer)
    assert "plug it in" in text_of(answer)
    assert {each[0] for each in stacks.heard} == {"local", "dev", "prod"}


@pytest.mark.parametrize("page", ["runs", "datasets", "clusters", "doctor"])
def test_an_error_of_one_stack_is_in_its_place_and_hides_no_other(page):
    broken = dict.fromkeys(("ls", "data", "model", "env", "doctor"), LaunchError("it is away"))
    good = {
        "ls": [run("here")],
        "data": [
            {"name": "digits", "version": 1, "digest": "ab", "files": 3, "bytes": 5, "created": "x"}
        ],
        "env": {"subscription_id": None, "clusters": {"cpu": CLUSTER}},
        "doctor": [{"part": "python", "health": "ok", "found": "3.13", "mend": None}],
    }
    stacks = Stacks({"dev": None, "local": True}, dev=broken, local=good)
    answer = getattr(pages_of(stacks), page)(asked())
    assert text_of(answer).count("it is away") == 1
    assert "<strong>dev</strong>" in text_of(answer)
    told = {cell for row in rows_of(answer) for cell in row}
    assert told & {"here", "digits", "cpu", "python"}


CLUSTER = {
    "compute": "cpu-1",
    "size": "local",
    "gpus_per_node": 0,
    "cpus_per_node": 4,
    "processes_per_node": 2,
    "min_nodes": 0,
    "max_nodes": 3,
    "price_per_node_hour": 2.5,
    "currency": "USD",
}


def test_clusters_of_this_machine_say_who_has_their_nodes():
    on = [
        run("a", state="running", nodes=2),
        run("b", state="queued"),
        run("c", state="running", cluster="other"),
    ]
    told = {"env": {"subscription_id": None, "clusters": {"cpu": CLUSTER}}, "ls": on}
    answer = pages_of(Stacks({"local": True}, local=told)).clusters(asked())
    assert [list(each) for each in zip(*rows_of(answer), strict=True)] == [
        ["Cluster", "cpu"],
        ["Size", "local"],
        ["Nodes", "3"],
        ["Running", "2"],
        ["Waiting", "1"],
        ["Idle", "1"],
        ["CPUs", "4"],
        ["GPUs", "0"],
        ["Ranks", "2"],
        ["Costs now", "5.00 USD/h"],
    ]


def test_clusters_of_azure_say_what_their_nodes_do_and_cost_and_can_be_changed():
    live = {
        "name": "gpu",
        "size": "NC64",
        "priority": "low_priority",
        "state": "steady",
        "min_nodes": 1,
        "max_nodes": 4,
        "nodes": 3,
        "idle_s": 120,
        "errors": ["no <quota>"],
        "counts": {
            "idle": 2,
            "running": 1,
            "preparing": 0,
            "leaving": 0,
            "unusable": 0,
            "preempted": 0,
        },
        "price_per_node_hour": 2.5,
        "currency": "USD",
    }
    told = {"env": {"subscription_id": "s", "clusters": {}}, "cluster": [live]}
    answer = pages_of(Stacks({"dev": None}, dev=told)).clusters(asked())
    head, row = rows_of(answer)
    assert dict(zip(head, row, strict=True)) == {
        "Cluster": "gpu",
        "Size": "NC64",
        "Priority": "low priority",
        "State": "steady",
        "Nodes": "3 of 1-4",
        "Idle": "2",
        "Running": "1",
        "Preparing": "0",
        "Leaving": "0",
        "Unusable": "0",
        "Preempted": "0",
        "Costs now": "7.50 USD/h",
        "Idle costs": "5.00 USD/h",
        "Idle after": "2 min",
    }
    page = text_of(answer)
    assert "no &lt;quota&gt;" in page
    assert [each for each in ("Pause", "Keep warm", "Resize") if f"<button>{each}<" in page] == [
        *("Pause", "Keep warm", "Resize")
    ]


def answered(late, works, number):
    """Ask until the question of this number has its answer; gives what all said then."""
    told = []

    def ask():
        told[:] = late.ask(works)
        return not told[number].error

    wait_until(ask, what=lambda: told[number].error)
    return told


def test_a_stack_that_is_slow_is_told_and_its_late_answer_is_on_the_next_page():
    is_there, num_asked = threading.Event(), []

    def slow():
        num_asked.append(1)
        is_there.wait(HANG_S)
        return Told(place="dev", value=["late"])

    late = Late(patience_s=0.05)
    works = {("local", "ls"): lambda: Told(place="local", value=["here"]), ("dev", "ls"): slow}
    # A busy machine may not have run its thread at the first look.
    first = answered(late, works, 0)
    assert first[0].value == ["here"]
    assert first[1].error.message == "`dev` has not answered yet"
    is_there.set()
    answered(late, works, 1)
    assert len(num_asked) <= 2
    assert late._asked == {}


def test_a_stack_that_does_not_answer_keeps_few_threads(monkeypatch):
    monkeypatch.setattr(reading, "MOST_WAITING", 2)
    is_there, num_asked = threading.Event(), []

    def hang():
        num_asked.append(1)
        is_there.wait(HANG_S)
        return Told(place="dev", value="late")

    late = Late(patience_s=0.01, patience_of_one_s=0.01)
    here = {("local", "ls"): lambda: Told(place="local", value="here")}
    for others in (here, {}):
        for number in range(4):
            works = {("dev", "ls", str(number)): hang} | others
            # A busy machine may not have run its thread at the first look.
            told = answered(late, works, 1) if others else late.ask(works)
            assert told[0].error.message == (
                "`dev` has not answered yet"
                if number < 2
                else "2 questions wait for `dev`; this one was not asked"
            )
            assert [each.value for each in told[1:]] == ["here"] * len(others)
    assert len(num_asked) == 2
    is_there.set()
    assert answered(late, {("dev", "ls", "4"): hang}, 0)[0].value == "late"


def test_an_answer_that_two_pages_waited_for_takes_no_later_question_with_it():
    is_there = threading.Event()
    late = Late(patience_of_one_s=0.01)
    slow = {("dev", "ls"): lambda: is_there.wait(HANG_S) and Told(place="dev", value="first")}
    assert late.ask(slow)[0].error
    first = late._asked["dev", "ls"]
    is_there.set()
    first.answer.result(HANG_S)
    again = _Asked()  # by a third page, once the second had taken the answer

    def wait_and_ask_again(answers, _):
        late._asked["dev", "ls"] = again
        return wait(answers)

    with patch.object(reading, "wait", wait_and_ask_again):
        assert late.ask(slow)[0].value == "first"
    assert late._asked == {("dev", "ls"): again}


def test_a_late_answer_that_grew_old_is_asked_for_again(monkeypatch):
    is_there = threading.Event()
    late = Late(patience_of_one_s=0.01)
    slow = {("dev", "ls"): lambda: is_there.wait(HANG_S) and Told(place="dev", value="old")}
    assert late.ask(slow)[0].error
    is_there.set()
    assert late._asked["dev", "ls"].answer.result(HANG_S).value == "old"
    monkeypatch.setattr(reading, "KEPT_S", -1.0)
    late._patience_of_one_s = 30
    assert late.ask({("dev", "ls"): lambda: Told(place="dev", value="new")})[0].value == "new"


def test_a_stack_that_cannot_be_read_is_asked_again_after_a_while_only(monkeypatch):
    away = EnvironmentFailure("not logged in")
    stacks = Stacks({"local": True, "dev": None}, dev={"env": away}, local={"env": away})
    for _ in range(3):
        assert [each.error for each in stacks.ask_each("ls")] == [None, away]
    assert [each for each in stacks.heard if each[0] == "dev"] == [["dev", "env", "show"]]
    monkeypatch.setattr(reading, "KEPT_S", 0.0)
    stacks.answers["dev"] = {"ls": ["there"]}
    assert [each.value for each in stacks.ask_each("ls")] == [[], ["there"]]


def test_an_error_of_several_stacks_is_said_once():
    told = [
        Told(place=place, error=LaunchError(f"`{place}` is away", hint="log in"))
        for place in ("dev", "prod")
    ]
    told += [Told(place="local", value=[]), Told(place="test", error=LaunchError("test broke"))]
    assert [(each.place, each.error.message, each.error.hint) for each in alike(told)] == [
        ("dev, prod", "`STACK` is away", "log in"),
        ("test", "test broke", None),
    ]


def test_a_request_lists_the_stacks_once(monkeypatch):
    num_asked = []
    monkeypatch.setattr(
        "jobs.ui.reading.call",
        lambda words: num_asked.append(words) or [{"stack": "a", "up": True}],
    )
    once = Reading(None).once()
    assert (once.places(), once.words_for("a"), once.words_for("a")) == (
        *(["a"], ["--stack=a"], ["--stack=a"]),
    )
    assert num_asked == [["env", "ls", "--json"]]


@pytest.fixture
def pages(launching):
    return pages_of(Reading(launching.env_file))


def test_a_sorted_list_is_of_all_runs_not_of_the_newest(launching, pages, monkeypatch):
    monkeypatch.setattr("jobs.ui.pages.PAGE_SIZE", 2)
    for name in ("b", "c", "a", "d", "e"):
        launching.add_run(name=name)
    shown = [row[2] for row in rows_of(pages.runs(asked("sort=name")))[1:]]
    assert shown == ["a", "b"]
    assert [row[2] for row in rows_of(pages.runs(asked("sort=oldest")))[1:]] == ["b", "c"]
    second = pages.runs(asked("sort=name&page=2"))
    assert [row[2] for row in rows_of(second)[1:]] == ["c", "d"]
    assert "sort=name&amp;page=3" in text_of(second)
    assert [row[2] for row in rows_of(pages.runs(asked()))[1:]] == ["e", "d"]


def test_only_a_sorted_list_reads_every_run():
    stacks = Stacks({"local": True}, local={"ls": [run(str(each)) for each in range(300)]})
    assert len(rows_of(pages_of(stacks).runs(asked()))) == 1 + PAGE_SIZE
    pages_of(stacks).runs(asked("sort=cost&name=x"))
    assert stacks.heard == [
        ["local", "ls", f"--limit={PAGE_SIZE + 1}"],
        ["local", "ls", "--all", "--name=x"],
    ]


@pytest.mark.parametrize("page", ["0", "00", "-1", "x", "", "\u0663"])
def test_a_page_that_is_none_is_the_first(launching, pages, page):
    launching.add_run(name="only")
    assert [row[2] for row in rows_of(pages.runs(asked(f"page={page}")))[1:]] == ["only"]


def folder_of(launching, run) -> Path:
    return Path(launching.workspace, "runs", run)


def test_a_file_whose_name_is_no_text_is_shown_and_given(launching, pages):
    run = launching.add_run()
    outputs = folder_of(launching, run) / "outputs"
    outputs.mkdir()
    name = os.fsdecode(b"a\xff<b>.png")
    (outputs / name).write_bytes(b"picture")
    page = text_of(pages.run(asked(place="file", run=run)))
    address = f"/runs/file/{run}/outputs/a%FF%3Cb%3E.png"
    assert f'src="{address}"' in page
    assert "a\\udcff&lt;b&gt;.png" in page
    request = asked(place="file", run=run, path="a\ufffd<b>.png", raw_path=address.encode())
    assert pages.output(request).path == outputs / name


@pytest.mark.parametrize("asked_for", [{}, {"range": "bytes=2-"}])
def test_a_file_that_grows_while_it_is_downloaded_is_given_as_long_as_it_was(
    written, served, monkeypatch, asked_for
):
    run = written.add_run()
    outputs = folder_of(written, run) / "outputs"
    outputs.mkdir()
    log = outputs / "events.log"
    log.write_bytes(b"12345")
    give = one_run.file_of

    def grow(*of):
        answer = give(*of)
        log.write_bytes(b"12345, and more" * 100_000)
        return answer

    monkeypatch.setattr(one_run, "file_of", grow)
    served.enter()
    answer = served.ask(f"/runs/file/{run}/outputs/events.log", **asked_for)
    assert answer.text == "12345"[2 if asked_for else 0 :]
    assert answer.headers["content-length"] == str(len(answer.text))


def test_of_very_many_outputs_the_first_are_shown(launching, pages, monkeypatch):
    run = launching.add_run()
    outputs = folder_of(launching, run) / "outputs"
    for folder in ("b", "a"):
        (outputs / folder).mkdir(parents=True)
        for number in range(4):
            (outputs / folder / f"{number}.txt").write_text("")
    run_dir = str(folder_of(launching, run))

    def names():
        found = one_run.outputs_of(run, run_dir, "")
        return [each["name"] for each in found["files"]], found["is_all"]

    every = [f"{folder}/{number}.txt" for folder in "ab" for number in range(4)]
    assert names() == (every, True)
    monkeypatch.setattr(one_run, "MOST_OUTPUTS", 3)
    assert names() == (every[:3], False)
    assert "These are the first" in text_of(pages.run(asked(place="file", run=run)))


def test_outputs_that_vanish_while_they_are_listed_are_passed_over(launching, monkeypatch):
    run = launching.add_run()
    outputs = folder_of(launching, run) / "outputs"
    outputs.mkdir()
    for name in ("gone", "kept"):
        (outputs / name).write_text("x")
    is_inside = one_run._is_inside

    def vanishing(path, folder):
        if path.name == "gone":
            path.unlink(missing_ok=True)
        return is_inside(path, folder)

    monkeypatch.setattr(one_run, "_is_inside", vanishing)
    told = RunHandle(id=run, engine="local", run_dir=str(folder_of(launching, run)))
    assert [each["name"] for each in one_run.outputs_of(told.id, told.run_dir, "")["files"]] == [
        "kept"
    ]
    with pytest.raises(NotFound, match="no output"):
        one_run.file_of(told, "gone")
    with pytest.raises(NotFound, match="no output"):
        one_run.file_of(told, "a\0b")


def test_what_was_fetched_is_shown_where_the_runs_own_folder_has_none(
    launching, pages, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    run = launching.add_run()
    page = text_of(pages.run(asked(place="file", run=run)))
    assert f"Fetch brings what there is to <code>{tmp_path / run}</code>" in page
    (tmp_path / run / "outputs").mkdir(parents=True)
    (tmp_path / run / "outputs" / "model.pt").write_text("weights")
    assert f"/runs/file/{run}/outputs/model.pt" in text_of(pages.run(asked(place="file", run=run)))


def test_the_cause_of_a_failure_leads_to_its_line_in_the_log(launching, pages):
    run = launching.add_run(ends_as="failed")
    page = text_of(pages.run(asked(place="file", run=run)))
    address = f"/runs/file/{run}?rank=1&amp;grep=ValueError%3A%5C+no%5C+luck#h-log"
    assert f'href="{address}"' in page
    chosen = text_of(pages.run(asked("rank=1&grep=no%5C+luck", place="file", run=run)))
    assert 'placeholder="all, 0,3-5" value="1"' in chosen
    assert 'name="grep" size="24" value="no\\ luck"' in chosen


RAISED = 'Traceback (most recent call last):\n  File "/code/train.py", line 12, in <module>\n    main()\n'


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ({"traceback": f"{RAISED}ValueError: bad batch (of 7)\n"}, "ValueError: bad batch (of 7)"),
        ({"exit_code": 5, "traceback": f"{RAISED}OSError: no"}, "OSError: no"),
        ({"traceback": f"{RAISED}torch.OutOfMemoryError: CUDA"}, "torch.OutOfMemoryError: CUDA"),
        ({"traceback": f"{RAISED}KeyError: {'x' * 4000}"}, f"KeyError: {'x' * 4000}"),
        ({"exit_code": 3, "last_lines": "error: no data\nbye\n"}, "error: no data"),
        (
            {"last_lines": "error: training has diverged: loss is nan\n"},
            "error: training has diverged: loss is nan",
        ),
        ({"exit_code": 3}, None),
        ({"exit_code": None, "signal": 9}, None),
        ({"exit_code": None, "signal": 9, "out_of_memory": True}, None),
        ({"stage": "setup", "setup": "pip install x", "last_lines": "no x"}, None),
        ({"hang_seconds": 60.0, "traceback": f"{RAISED}ValueError: ours\n"}, None),
    ],
)
def test_the_line_that_a_cause_leads_to_is_in_the_log(report, line):
    told = RankReport(**{"rank": 3, "exit_code": 1, "exited_s": 9.0, "traceback_s": 9.0, **report})
    error = msgspec.to_builtins(root_cause([told], stopped_s=None))
    evidence = one_run.evidence_of({"error": error}, "/runs/local/r")
    chosen = parse_qs(urlsplit(evidence["address"]).query)
    assert (chosen["rank"], evidence["is_line"]) == (["3"], line is not None)
    log = ["step 1", "main()", *([line] if line else ["killed", "terminated"])]
    pattern = re.compile(chosen["grep"][0] if line else "")
    assert [each for each in log if pattern.search(each)] == ([line] if line else log)


def test_a_note_of_ours_behind_the_last_words_is_not_looked_for_in_the_log():
    early = RankReport(rank=0, exit_code=0, exited_s=1.0)
    lost = RankReport(rank=1, exit_code=7, exited_s=2.0, last_lines="Broken pipe")
    error = root_cause([early, lost], stopped_s=None)
    assert error.message == "Broken pipe; before that, rank 0 had ended with exit code 0"
    evidence = one_run.evidence_of({"error": msgspec.to_builtins(error)}, "/r")
    assert evidence == {"address": "/r?rank=1&grep=Broken%5C+pipe#h-log", "is_line": True}


@pytest.mark.parametrize(
    ("size", "count", "names_them"),
    [
        ({"processes_per_node": 1}, 1, False),
        ({"processes_per_node": 1, "parameter_servers": 1}, 2, True),
        ({"processes_per_node": 2, "parameter_servers": 1}, 3, True),
        ({"processes_per_node": 80}, 64, True),
    ],
)
def test_lines_can_be_chosen_of_each_process_that_has_a_log(
    launching, pages, size, count, names_them
):
    page = text_of(pages.run(asked(place="file", run=launching.add_run(**size))))
    offered = re.search(r'<datalist id="ranks">(.*?)</datalist>', page)[1]
    assert re.findall(r'value="(\d+)"', offered) == [str(each) for each in range(count)]
    assert ("data-ranks" in page) is names_them


def test_a_run_tells_its_checkpoints_ranks_and_configuration_in_tables(launching, pages):
    run = launching.add_run(env={"A": "b"})
    folder = folder_of(launching, run)
    for step in (20, 40):
        place = folder / "checkpoints" / f"step-{step}"
        place.mkdir(parents=True)
        manifest = {"step": step, "saved": "2026-01-02T03:04:05.000006Z"}
        (place / "manifest.json").write_text(json.dumps(manifest))
        (place / "weights").write_bytes(b"x" * 100_000)
    (folder / "ranks").mkdir()
    report = {"rank": 1, "host": "node-a", "exit_code": 3, "last_lines": "one\nno <luck>\n"}
    (folder / "ranks" / "00001.json").write_text(json.dumps(report))
    rows = rows_of(pages.run(asked(place="file", run=run)))
    assert [row[:2] for row in rows if row[0] in ("40", "20")] == [
        *(["40", "100.1 kB"], ["20", "100.1 kB"]),
    ]
    assert ["1", "0", "node-a", "exit 3", "no <luck>"] in rows
    assert ["env.A", "b"] in rows


def test_two_runs_are_compared_key_by_key(launching, pages):
    first, second = launching.add_run(env={"A": "b"}), launching.add_run(env={"A": "<c>"})
    answer = pages.diff(asked(f"with={first}", place="file", run=second))
    rows = rows_of(answer)
    assert rows[0] == ["Key", first, second]
    assert ["env.A", "b", "<c>"] in rows
    assert "&lt;c&gt;" in text_of(answer)


def test_a_rerun_can_be_changed_and_its_plan_is_shown_before(launching, pages):
    run = launching.add_run()
    words = f"place=file&word=rerun&word={run}"
    page = text_of(pages.ask(asked(f"{words}&nodes=2&set=env.B%3Dc%0Aenv.D%3De")))
    assert "2 nodes" in page
    changes = "--nodes=2 --set=env.B=c --set=env.D=e"
    assert f"launch rerun {changes} --env={launching.env_file} {run}" in page
    assert 'name="nodes" size="4" value="2"' in page
    assert ">env.B=c\nenv.D=e</textarea>" in page
    assert page.split("With changes")[1].count('type="hidden"') == 3
    refused = text_of(pages.ask(asked(f"{words}&set=nodes%3D99")))
    assert 'id="confirm"' not in refused
    assert "With changes" in refused


def test_a_run_is_resumed_by_a_page_that_says_from_where(launching, pages):
    run = launching.add_run(ends_as="failed")
    place = folder_of(launching, run) / "checkpoints" / "step-20"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text('{"step": 20}')
    query = f"place=file&word=rerun&word=--resume&word={run}"
    assert f"{run} at step 20" in text_of(pages.ask(asked(query)))
    led = pages.act(QueryParams(query))
    again = pages.done(asked(number=led.headers["location"].rpartition("/")[2]))
    assert again.headers["location"].startswith("/runs/file/")
    plan, _ = FakeEngine.submitted[-1]
    assert (plan.spec.resume.run, plan.spec.resume.step) == (run, 20)


def test_a_run_is_fetched_into_a_folder_that_the_page_names(
    launching, pages, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    run = launching.add_run()
    query = f"place=file&word=fetch&word={run}"
    assert f"launch fetch --into={tmp_path / run} --env" in text_of(pages.ask(asked(query)))
    number = pages.act(QueryParams(query)).headers["location"].rpartition("/")[2]
    assert pages._doings.find(int(number)).is_over.wait(HANG_S)
    assert str(tmp_path / run) in text_of(pages.done(asked(number=number)))
    assert (tmp_path / run).is_dir()


def test_what_is_done_goes_on_beside_its_page(launching, pages, monkeypatch):
    is_over = threading.Event()
    monkeypatch.setattr("jobs.ui.doing.SHORT_S", 0.01)
    monkeypatch.setattr("jobs.ui.actions.do", lambda line: is_over.wait(HANG_S) and "<done>")
    answer = pages.act(QueryParams("place=file&word=fetch&word=20261121-120000-abcd"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/done/1")
    page = text_of(pages.done(asked(number="1")))
    assert "Under way" in page
    assert 'id="doing"' in page
    is_over.set()
    assert pages._doings.find(1).is_over.wait(HANG_S)
    page = text_of(pages.done(asked(number="1")))
    assert "&lt;done&gt;" in page
    assert 'id="doing"' not in page
    with pytest.raises(NotFound, match="no action 2"):
        pages.done(asked(number="2"))


def test_a_form_that_is_sent_twice_begins_its_action_once(launching, pages, monkeypatch):
    """A second click comes while the first is under way; who asks again gets another form."""
    begun, is_over = [], threading.Event()
    monkeypatch.setattr("jobs.ui.doing.SHORT_S", 0.01)
    monkeypatch.setattr("jobs.ui.actions.do", lambda line: begun.append(1) or is_over.wait(HANG_S))
    query = f"place=file&word=cancel&word={launching.add_run()}"
    led = []
    for _ in range(2):
        once = re.search(r'name="once" value="([^"]{16,})"', text_of(pages.ask(asked(query))))[1]
        led += [pages.act(QueryParams(f"{query}&once={once}")) for _ in range(2)]
    is_over.set()
    assert [each.headers["location"] for each in led] == [
        f"/done/{number}" for number in (1, 1, 2, 2)
    ]
    assert [pages._doings.find(number).is_over.wait(HANG_S) for number in (1, 2)] == [True, True]
    assert begun == [1, 1]


def test_what_an_action_failed_by_is_said_with_its_words(pages, monkeypatch):
    def fails(line):
        raise LaunchError("it <failed>", hint="try it again")

    monkeypatch.setattr("jobs.ui.actions.do", fails)
    pages.act(QueryParams("place=file&word=cancel&word=r"))
    answer = pages.done(asked(number="1"))
    assert answer.status_code == 400
    assert "it &lt;failed&gt;" in text_of(answer)
    assert "<code>launch cancel --env=" in text_of(answer)


def test_a_mistake_of_ours_ends_an_action_too(pages, monkeypatch):
    monkeypatch.setattr("jobs.ui.actions.do", lambda line: {}["<key>"])
    pages.act(QueryParams("place=file&word=cancel&word=r"))
    answer = pages.done(asked(number="1"))
    assert answer.status_code == 400
    assert "KeyError: &#39;&lt;key&gt;&#39;" in text_of(answer)
    assert "this is a bug in launch" in text_of(answer)


def test_jobs_are_started_where_something_is_up_and_an_error_leaves_the_form():
    job = {"name": "digits", "description": "", "launcher": "none", "needs": []}
    stacks = Stacks(
        {"dev": None, "local": True}, local={"jobs": [job]}, dev={"jobs": LaunchError("away")}
    )
    page = text_of(pages_of(stacks).jobs(asked()))
    assert '<th scope="row">digits</th>' in page
    assert "<option selected>local</option>" in page
    broken = text_of(pages_of(stacks).jobs(asked("place=dev")))
    assert "away" in broken
    assert "Show the plan" in broken


def test_the_doctor_is_asked_where_nothing_is_up(monkeypatch):
    stacks = Stacks({"local": False})
    check = {"part": "uv", "health": "missing", "found": "none", "mend": "make setup"}
    monkeypatch.setattr("jobs.ui.reading.call", lambda words: [check])
    rows = rows_of(pages_of(stacks).doctor(asked()))
    assert rows[1:] == [["uv", "missing", "none", "make setup"]]


def test_the_doctor_looks_at_this_machine_whatever_a_stack_of_azure_answers(monkeypatch):
    away = EnvironmentFailure("not logged in")
    stacks = Stacks({"dev": None}, dev={"env": away, "doctor": LaunchError("not asked")})
    check = {"part": "uv", "health": "ok", "found": "0.13", "mend": None}
    monkeypatch.setattr("jobs.ui.reading.call", lambda words: [check])
    answer = pages_of(stacks).doctor(asked())
    assert rows_of(answer)[1:] == [["uv", "ok", "0.13", ""]]
    assert "not logged in" in text_of(answer)
    assert stacks.heard == [["dev", "env", "show"]]


def test_what_up_would_change_is_told_where_it_is_refused_too():
    loss = {
        "name": "gpu",
        "type": "a:b:Cluster",
        "change": "replaced",
        "because": ["vmSize"],
        "costs": "runs end",
        "within": None,
        "is_protected": False,
        "is_locked": False,
        "is_allowed": False,
    }
    changes = {"losses": [loss], "updated": ["store"], "created": [], "is_cut_short": False}
    refusal = LaunchError("1 resource would be replaced")
    refusal.value = {
        "changes": changes,
        "parts": [{"part": "store", "ok": False, "detail": "403", "mend": "az login"}],
        "offers": None,
        "quota": [],
    }

    class Refusing(Stacks):
        def ask(self, place, *words, of=()):
            if words == ("env", "check"):
                raise refusal
            raise LaunchError("not up")

    answer = pages_of(Refusing({"dev": None})).environment(asked("changes=yes", place="dev"))
    assert rows_of(answer) == [
        ["Name", "Kind", "Change", "State", "Costs"],
        ["gpu", "Cluster", "replaced (vmSize)", "refused", "runs end"],
        ["store", "", "updated", "", ""],
        ["Part", "State", "Found", "To mend it"],
        ["store", "failed", "403", "az login"],
    ]
    assert "1 resource would be replaced" in text_of(answer)
    assert "not up" in text_of(answer)


def test_versions_have_pages_of_their_own():
    record = {
        "name": "digits",
        "version": 2,
        "digest": "abcdef0123456789",
        "files": 1797,
        "bytes": 5_000_000,
        "created": "2026-01-02T03:04:05Z",
    }
    share = {"name": "train", "files": 1500, "bytes": 4_000_000}
    shown = {**record, "url": "https://x", "folders": [share], "kinds": []}
    diff = {"changes": [{"path": "a", "kind": "changed", "a": 1, "b": 2000}]}

    class Versions(Stacks):
        def ask(self, place, *words, of=()):
            if words == ("data", "diff"):
                assert of == ["digits@1", "digits@2"]
                return diff
            return {"data show": shown, "data ls": [record]}.get(" ".join(words), [])

    pages = pages_of(Versions({"a b": True}))
    listed = pages.datasets(asked())
    assert rows_of(listed)[1] == [
        *("digits", "2", "1,797", "5.0 MB", "2026-01-02 03:04", "abcdef012345"),
    ]
    assert 'href="/data/a%20b/digits%402"' in text_of(listed)
    assert "No model yet" in text_of(listed)
    rows = rows_of(pages.data(asked("with=digits@1", place="a b", ref="digits@2")))
    assert ["a", "changed", "1 B", "2.0 kB"] in rows
    assert ["bytes", "5000000"] in rows
    assert ["train", "1,500", "4.0 MB"] in rows


def test_what_is_not_there_is_said_by_its_page(written, served):
    served.enter()
    for path, said in (
        ("/runs/file/nope", "there is no run `nope`"),
        ("/runs/elsewhere/last", "there is no stack `elsewhere` here"),
    ):
        answer = served.ask(path)
        assert answer.status == 404, path
        assert said in answer.text.partition('role="alert"')[2], path
    assert "--since" in served.ask("/runs?since=x").text.partition("problem")[2]
