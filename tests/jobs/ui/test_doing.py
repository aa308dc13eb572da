"""What a page does: asked for and planned before, begun once, its end told on a page of its own."""

from __future__ import annotations

import re
import threading

import pytest
from starlette.datastructures import QueryParams

from jobs.contracts.errors import LaunchError, NotFound
from tests.busy import HANG_S
from tests.fakes.asked_pages import asked, text_of
from tests.fakes.launching import FakeEngine
from tests.jobs.ui.conftest import folder_of


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
