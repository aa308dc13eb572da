"""What pages show of which environment, whatever one of them answers."""

from __future__ import annotations

import json
import os
import re
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.contracts.spec import RunHandle
from jobs.runs.failure import RankReport, root_cause
from jobs.ui import one_run
from jobs.ui.pages import PAGE_SIZE
from tests.fakes.asked_pages import Stacks, asked, pages_of, rows_of, run, text_of
from tests.jobs.ui.conftest import folder_of


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
