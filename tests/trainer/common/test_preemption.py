"""Notices to leave: SIGTERM, and Scheduled Events as Azure documents them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.busy import HANG_S, wait_until
from tests.fakes.instance_metadata import InstanceMetadata, instance_metadata
from trainer.common import preemption
from trainer.common.preemption import Notice, ending_event, events_url
from trainer.common.world import World

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)


@pytest.fixture
def service() -> Iterator[InstanceMetadata]:
    with instance_metadata() as served:
        yield served


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Notice]]:
    """Notices whose polling ends with the test, and a SIGTERM that is pytest's again."""
    monkeypatch.setattr(preemption, "POLL_S", 0.01)
    before = signal.getsignal(signal.SIGTERM)
    made: list[Notice] = []
    yield made
    for notice in made:
        notice.reason = "the test is over"
    for each in threading.enumerate():
        if each.name.endswith("(_poll)"):
            each.join(HANG_S)
    signal.signal(signal.SIGTERM, before)


def watch(notices: list[Notice], service: InstanceMetadata | None = None) -> Notice:
    notice = Notice(say=pytest.fail)
    notices.append(notice)
    notice.watch(scheduled_events=service.url if service else None)
    return notice


def wait_for_polls(service: InstanceMetadata, count: int) -> None:
    aim = service.num_polls + count
    wait_until(lambda: service.num_polls >= aim)


def wait_for_reason(notice: Notice) -> str:
    wait_until(lambda: notice.reason)
    assert notice.reason is not None
    return notice.reason


def test_sigterm_is_a_notice_and_does_not_end_the_process(notices):
    notice = watch(notices)
    assert notice.reason is None
    os.kill(os.getpid(), signal.SIGTERM)
    assert notice.reason == "SIGTERM"


@pytest.mark.parametrize("kind", ["Preempt", "Terminate", "Reboot", "Redeploy"])
def test_event_that_ends_the_machine_is_a_notice(notices, service, kind):
    notice = watch(notices, service)
    wait_for_polls(service, 2)
    assert notice.reason is None
    service.schedule("Freeze")
    wait_for_polls(service, 2)
    assert notice.reason is None
    service.schedule(kind)
    assert wait_for_reason(notice) == f"Azure's scheduled event {kind}"


def test_event_of_another_machine_of_the_scale_set_is_none(notices, service):
    service.schedule("Preempt", resources=("trainers_1", "trainers_30"))
    notice = watch(notices, service)
    wait_for_polls(service, 3)
    assert notice.reason is None
    service.schedule("Preempt", resources=("trainers_1", "trainers_3"))
    assert wait_for_reason(notice) == "Azure's scheduled event Preempt"


@pytest.mark.parametrize("name", ["", '{"Events": []}', "a b", "x" * 81])
def test_what_is_no_name_of_a_machine_is_not_compared_with(notices, service, name):
    service.name = name
    service.schedule("Preempt")
    assert wait_for_reason(watch(notices, service)) == "Azure's scheduled event Preempt"


def test_what_the_service_answers_wrongly_is_borne(notices, service):
    notice = watch(notices, service)
    for answer in (500, 429, b"", b"{", b"[]", b"null", b'{"Events": [1]}', b'{"Events": null}'):
        service.answer = answer
        wait_for_polls(service, 2)
    assert notice.reason is None
    service.answer = None
    service.schedule("Preempt")
    assert wait_for_reason(notice) == "Azure's scheduled event Preempt"


def test_service_that_never_answers_is_warned_of_once(notices, monkeypatch):
    monkeypatch.setattr(preemption, "FAILURES_TO_WARN_AT", 3)
    with instance_metadata() as served:
        url = served.url
    said: list[str] = []
    polls: list[str] = []
    get = preemption._get
    monkeypatch.setattr(preemption, "_get", lambda url: polls.append(url) or get(url))
    notice = Notice(say=said.append)
    notices.append(notice)
    notice.watch(scheduled_events=url)
    wait_until(lambda: said)
    aim = len(polls) + 2 * preemption.FAILURES_TO_WARN_AT
    wait_until(lambda: len(polls) > aim)
    assert said == [
        f"Scheduled Events do not answer at {url}: <urlopen error [Errno 111] Connection refused>"
    ]


def test_proxy_is_not_asked(notices, service, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    service.schedule("Preempt")
    assert wait_for_reason(watch(notices, service)) == "Azure's scheduled event Preempt"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "Reboot"),
        ({"NotBefore": "Sat, 21 Nov 2026 18:02:00 GMT"}, "Reboot"),
        ({"NotBefore": "Sat, 21 Nov 2026 18:02:01 GMT"}, None),
        ({"NotBefore": "Sat, 28 Nov 2026 18:00:00 GMT"}, None),
        ({"NotBefore": ""}, "Reboot"),
        ({"NotBefore": None}, "Reboot"),
        ({"NotBefore": "soon"}, "Reboot"),
        ({"NotBefore": "Sat, 28 Nov 2026 18:00:00 GMT", "EventStatus": "Started"}, "Reboot"),
        ({"Resources": []}, None),
        ({"EventType": "Freeze"}, None),
    ],
)
def test_only_what_is_near_is_left_for(changes, expected):
    event = {
        "EventType": "Reboot",
        "Resources": ["trainers_3"],
        "EventStatus": "Scheduled",
        "NotBefore": "Sat, 21 Nov 2026 18:00:30 GMT",
        **changes,
    }
    assert ending_event({"Events": [event]}, "trainers_3", NOW) == expected


def test_without_a_name_every_event_counts():
    event = {"EventType": "Preempt", "Resources": ["trainers_1"]}
    assert ending_event({"Events": [event]}, None, NOW + timedelta(days=1)) == "Preempt"


def test_one_rank_of_a_machine_polls():
    second, other_node = World(rank=1, size=4, local_rank=1), World(rank=2, size=4, node_rank=1)
    url = preemption.AZURE_SCHEDULED_EVENTS
    found = [events_url("azure", world) for world in (World(), second, other_node)]
    assert found == [url, None, url]
    assert events_url("http://127.0.0.1:1/", World()) == "http://127.0.0.1:1/"
    assert events_url(None, World()) is None
