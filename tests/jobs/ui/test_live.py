"""No line is lost or told twice, wherever a connection breaks off."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jobs.contracts.spec import LogLine
from jobs.ui.live import MOST_AT_ONCE, TAIL, Position
from tests.busy import HANG_S


def line(ts: int, rank: int, text: str) -> LogLine:
    return LogLine(ts=f"2026-01-02T03:04:{ts // 10:02d}.{ts % 10:06d}Z", rank=rank, text=text)


WRITTEN = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=30)


@given(written=WRITTEN, looks=st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=20))
def test_each_look_tells_what_was_not_told(written, looks):
    """A line is written in order of its rank's times; looks see a growing share of the lines."""
    ordered = sorted(written)
    lines = [line(ts, rank, str(number)) for number, (ts, rank) in enumerate(ordered)]
    position, told = Position(), []
    for share, is_broken in [*sorted(looks), (30, False)]:
        there = lines if share == 30 else lines[: len(lines) * share // 30]
        if is_broken:  # the browser connects again with the last event's id
            position = Position(str(position))
        since = position.since
        told += [
            each.text
            for each in position.unsent(each for each in there if since is None or each.ts >= since)
        ]
    assert sorted(told, key=int) == [each.text for each in lines]
    assert len(told) == len(set(told))


def test_lines_before_the_last_ones_stay_out():
    lines = [line(number // 60, 0, str(number)) for number in range(TAIL)]
    position = Position()
    position.begin(lines)
    assert len(list(position.unsent(lines))) == TAIL
    late = line(0, 1, "of a rank that the last lines have not")
    assert late.ts == lines[0].ts
    older = LogLine(ts="2025-01-02T03:04:05.000006Z", rank=1, text="older")
    assert [each.text for each in Position(str(position)).unsent([older, late])] == [late.text]


def test_an_id_that_somebody_made_up_begins_anew():
    for text in ("", ";", "x;y", ";0=2026~x,=~", ";0=not a time~1", ";-1=2026~1", "\x00;;~=,"):
        assert Position(text).since is None


def events_of(served, run, last_id="", **asked):
    """Read the stream of a run's lines to its end; the lines, and the id of the last event."""
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    answer = served.ask(f"/runs/file/{run}/lines?{query}", last_event_id=last_id)
    assert answer.status == 200, answer.text
    lines, ids = [], []
    for event in answer.text.split("\n\n"):
        fields = dict(each.partition(": ")[::2] for each in event.splitlines())
        if "id" in fields:
            ids.append(fields["id"])
        if "data" in fields and "event" not in fields:
            lines += json.loads(fields["data"])
    return lines, ids[-1] if ids else "", answer.text


def write_log(written, run, rank, texts, second=0):
    folder = Path(written.workspace, "runs", run, "logs")
    log = folder / f"rank-{rank:05d}.log"
    told = "".join(
        f"2026-01-02T03:05:{second + number // 1000:02d}.{number % 1000:06d}Z {text}\n"
        for number, text in enumerate(texts)
    )
    log.write_text(told)


def test_a_page_gets_the_lines_of_all_ranks_of_one_or_that_match(written, served):
    run = written.add_run()
    write_log(written, run, 0, ["zero", "loss 1"])
    write_log(written, run, 1, ["one", "loss 2"], second=1)
    served.enter()
    lines, last, text = events_of(served, run)
    assert [[rank, text] for rank, _, text in lines] == [
        [0, "zero"],
        [0, "loss 1"],
        [1, "one"],
        [1, "loss 2"],
    ]
    assert text.endswith("event: over\ndata: null\n\n")
    assert [each[2] for each in events_of(served, run, rank=1)[0]] == ["one", "loss 2"]
    assert [each[2] for each in events_of(served, run, grep="^loss")[0]] == ["loss 1", "loss 2"]
    assert events_of(served, run, last_id=last)[0] == []
    assert served.ask(f"/runs/file/{run}/lines?rank=9").status == 404
    assert served.ask(f"/runs/file/{run}/lines?grep=(").status == 404


def test_a_long_log_begins_at_its_last_lines(written, served):
    run = written.add_run()
    write_log(written, run, 0, [str(number) for number in range(TAIL + 3 * MOST_AT_ONCE)])
    served.enter()
    lines, _, _ = events_of(served, run)
    assert [each[2] for each in (lines[0], lines[-1])] == ["1500", "3499"]


def test_fifty_broken_connections_lose_no_line(written, served, monkeypatch):
    """A writer appends while the reader leaves after every event and comes again with its id."""
    from jobs.ui import live

    run = written.add_run()
    is_done = threading.Event()
    texts = [f"line {number}" for number in range(2000)]
    folder = Path(written.workspace, "runs", run, "logs")
    (folder / "rank-00000.log").write_text("")
    watched = []
    look = live.Watched.look

    def look_and_write(self):
        """Some lines more before each look; over once all are written."""
        at = len(watched) * 40
        with (folder / "rank-00000.log").open("a") as log:
            for number, text in enumerate(texts[at : at + 40]):
                log.write(f"2026-01-02T03:06:{at // 40:02d}.{number:06d}Z {text}\n")
        watched.append(at)
        found, _ = look(self)
        return found, at >= len(texts)

    monkeypatch.setattr(live.Watched, "look", look_and_write)
    served.enter()
    told, last, num_connections = [], "", 0
    while not is_done.is_set():
        connection = served_stream(served, run, last)
        num_connections += 1
        event = next_event(connection)
        connection.close()
        if event.get("event") == "over":
            is_done.set()
        elif "data" in event:
            told += [each[2] for each in json.loads(event["data"])]
            last = event["id"]
    assert num_connections >= 50
    assert told == texts


def served_stream(served, run, last_id):
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=HANG_S)
    headers = {"host": f"127.0.0.1:{served.port}", "cookie": served.cookie}
    connection.request(
        "GET",
        f"/runs/file/{run}/lines",
        headers=headers | ({"last-event-id": last_id} if last_id else {}),
    )
    connection.stream = connection.getresponse()
    return connection


def next_event(connection):
    fields = {}
    while True:
        text = connection.stream.readline().decode().rstrip("\n")
        if not text and fields and "retry" not in fields:
            return fields
        if not text:
            fields = {}
        elif not text.startswith(":"):
            name, _, value = text.partition(": ")
            fields[name] = value
