"""No line is lost or told twice, wherever a connection breaks off."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.contracts.errors import Unreached
from jobs.contracts.spec import LogLine
from jobs.ui.live import MOST_AT_ONCE, MOST_STREAMS, TAIL, Position
from tests.busy import HANG_S, Bound
from tests.jobs.ui.conftest import add_running


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
    huge = "9" * 5000
    for text in (
        f";{huge}=2026~1",
        f";0=2026~{huge}",
        ";٣=2026~1",
        "",
        ";",
        "x;y",
        ";0=2026~x,=~",
        ";0=not a time~1",
        ";-1=2026~1",
        "\x00;;~=,",
    ):
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
    wrong = served.ask(f"/runs/file/{run}/lines?rank=9")
    assert (wrong.status, wrong.text) == (400, "`--rank 9`: the run has the ranks 0 to 1")
    wrong = served.ask(f"/runs/file/{run}/lines?grep=(")
    assert (wrong.status, wrong.text[:33]) == (400, "`--grep (` is not a regular expre")
    assert served.ask("/runs/file/nope/lines").status == 404


def test_lines_of_parameter_servers_are_read_behind_those_of_the_ranks(written, served):
    run = written.add_run(parameter_servers=1)
    write_log(written, run, 2, ["of the server"])
    served.enter()
    assert [each[2] for each in events_of(served, run, rank=2)[0]] == ["of the server"]
    wrong = served.ask(f"/runs/file/{run}/lines?rank=3")
    assert (wrong.status, wrong.text) == (400, "`--rank 3`: the run has the ranks 0 to 2")


def test_a_long_log_begins_at_its_last_lines_and_every_event_can_be_the_last(written, served):
    run = written.add_run()
    write_log(written, run, 0, [str(number) for number in range(TAIL + 3 * MOST_AT_ONCE)])
    served.enter()
    lines, _, text = events_of(served, run)
    told = [each[2] for each in lines]
    assert told == [str(number) for number in range(3 * MOST_AT_ONCE, TAIL + 3 * MOST_AT_ONCE)]
    ids = [each.splitlines()[0] for each in text.split("\n\n") if "\ndata: [" in each]
    assert len(ids) == TAIL // MOST_AT_ONCE
    for number, each in enumerate(ids, start=1):
        rest = events_of(served, run, last_id=each.removeprefix("id: "))[0]
        assert [line[2] for line in rest] == told[number * MOST_AT_ONCE :]


def test_a_page_begins_with_all_of_the_last_lines_though_the_clock_was_set_back(written, served):
    run = written.add_run()
    log = Path(written.workspace, "runs", run, "logs", "rank-00000.log")
    minutes = {"before": 30, "after": 20}
    lines = [
        (f"2026-01-02T03:{minute}:{number // 100:02d}.{number:06d}Z", f"{word} {number}")
        for word, minute in minutes.items()
        for number in range(TAIL * 3 // 4)
    ]
    log.write_text("".join(f"{ts} {text}\n" for ts, text in lines))
    served.enter()
    told = events_of(served, run)[0]
    assert [each[2] for each in told] == [text for _, text in lines[-TAIL:]]


def test_a_page_gets_long_lines_cut_and_no_event_that_is_too_large_for_it(
    written, served, monkeypatch
):
    run = written.add_run()
    monkeypatch.setattr("jobs.ui.live.LONGEST_LINE", 100)
    monkeypatch.setattr("jobs.ui.live.MOST_CHARACTERS", 500)
    long = [f"{number}: {'é' * 300} end" for number in range(20)]
    texts = ["x" * 99 + "y", *long, "short"]
    write_log(written, run, 0, texts)
    served.enter()
    lines, last, text = events_of(served, run)
    cut = [f"{each[:100]} [{len(each) - 100} more characters]" for each in long]
    assert [each[2] for each in lines] == [texts[0], *cut, "short"]
    events = [each for each in text.split("\n\n") if "\ndata: [" in each]
    assert [len(json.loads(each.partition("data: ")[2])) for each in events] == [5, 5, 5, 5, 2]
    # What is looked for may stand behind the cut; lines that are cut are not told again.
    assert [each[2] for each in events_of(served, run, grep="^7.*end$")[0]] == [cut[7]]
    assert events_of(served, run, last_id=last)[0] == []


def test_a_connection_reads_on_where_it_is_and_looks_for_the_place_only_when_it_begins(
    written, served, monkeypatch
):
    """One rank that has said nothing for long has nobody read the others' lines again."""
    from tests.fakes.launching import FakeEngine

    run = written.add_run()
    write_log(written, run, 0, ["early"])
    write_log(written, run, 1, [str(number) for number in range(3 * MOST_AT_ONCE)], second=30)
    asked = []
    watch = FakeEngine.watch

    def watch_and_count(self, *place, **how):
        asked.append(how["since"])
        return watch(self, *place, **how)

    monkeypatch.setattr(FakeEngine, "watch", watch_and_count)
    served.enter()
    lines, last, _ = events_of(served, run)
    assert len(lines) == 3 * MOST_AT_ONCE + 1
    assert asked == [None]
    assert events_of(served, run, last_id=last)[0] == []
    assert asked == [None, "2026-01-02T03:04:50.000000Z"]


@pytest.mark.parametrize("stamp", ["a\rb", "2026;x", "1=2~3,4=5~6", "\x85\u2028\x00", "%0d%25"])
def test_a_stamp_that_a_script_made_up_breaks_no_event(written, served, stamp):
    """What a script writes past our pump has any text in the place of a time."""
    run = written.add_run()
    log = Path(written.workspace, "runs", run, "logs", "rank-00000.log")
    log.write_text(f"{stamp} one\n{stamp} two\n", newline="")
    served.enter()
    lines, last, _ = events_of(served, run)
    assert [(ts, text) for _, ts, text in lines] == [(stamp, "one"), (stamp, "two")]
    with log.open("a", newline="") as more:
        more.write(f"{stamp} three\n")
    assert [each[2] for each in events_of(served, run, last_id=last)[0]] == ["three"]


@pytest.mark.parametrize("error", [ValueError("ours"), FileNotFoundError(2, "it has gone")])
def test_a_stream_that_cannot_be_read_ends_with_one_event_that_says_why(
    written, supervised, served, monkeypatch, capsys, error
):
    run = add_running(written, supervised)

    def fail(self, *_, **__):
        raise error

    monkeypatch.setattr("tests.fakes.launching.FakeEngine.watch", fail)
    served.enter()
    told = events_of(served, run)[2].split("\n\n")[1]
    by_error = {
        ValueError: "ValueError: ours",
        FileNotFoundError: f"the lines of run {run} cannot be read: it has gone",
    }
    assert told == f"event: lost\ndata: {json.dumps(by_error[type(error)])}"
    # Where it was written stands in the terminal, of a mistake of ours alone.
    assert ("in fail" in capsys.readouterr().err) == isinstance(error, ValueError)


def test_a_store_that_goes_in_the_midst_of_a_look_is_told_and_each_line_comes_once(
    written, served, monkeypatch
):
    from tests.fakes.launching import FakeEngine

    run = written.add_run()
    texts = [f"line {number}" for number in range(7)]
    write_log(written, run, 0, texts[:2])
    served.enter()
    lines, last, _ = events_of(served, run)
    assert [each[2] for each in lines] == texts[:2]
    write_log(written, run, 0, texts)
    watch, times_gone = FakeEngine.watch, []

    def cut_off(look):
        for number, each in enumerate(look):
            if number == 4 and len(times_gone) < 3:
                times_gone.append(number)
                raise Unreached("the store cannot be reached")
            yield each

    def watch_what_goes(self, *place, **how):
        return map(cut_off, watch(self, *place, **how))

    monkeypatch.setattr(FakeEngine, "watch", watch_what_goes)
    monkeypatch.setattr("jobs.ui.live.PAUSE_S", 0.01)
    lines, _, text = events_of(served, run, last_id=last)
    late = 'event: late\ndata: "the store cannot be reached"\n\n'
    assert text.startswith(f"retry: 1000\n\n{3 * late}event: found\ndata: null\n\nid: ")
    assert [each[2] for each in lines] == texts[2:]
    assert text.endswith("event: over\ndata: null\n\n")


def test_a_page_that_comes_while_the_store_is_gone_comes_again(written, served, monkeypatch):
    from jobs.ui import live

    def gone(*_):
        raise Unreached("the store cannot be reached")

    run = written.add_run()
    served.enter()
    monkeypatch.setattr(live, "open_run_at", gone)
    answer = served.ask(f"/runs/file/{run}/lines")
    # A browser connects again after a stream that ends, and never after another status.
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (
        200,
        "text/event-stream",
    )
    assert answer.text == ('retry: 2000\n\nevent: late\ndata: "the store cannot be reached"\n\n')


def test_what_an_id_of_a_page_names_is_where_its_stream_begins(written, served):
    run = written.add_run()
    write_log(written, run, 0, ["one", "two"])
    served.enter()
    _, last, _ = events_of(served, run)
    write_log(written, run, 0, ["one", "two", "three"])
    assert [each[2] for each in events_of(served, run, last=last)[0]] == ["three"]


def test_a_stream_beyond_those_that_stay_tells_what_is_there_and_ends(written, supervised, served):
    run = add_running(written, supervised)
    served.enter()
    staying = [served_stream(served, run, "") for _ in range(MOST_STREAMS)]
    for each in staying:
        assert "data" in next_event(each)
    lines, last, text = events_of(served, run)
    assert [each[2] for each in lines] == ["hello"]
    assert text.startswith("retry: 2000\n\n")
    assert text.endswith("event: turn\ndata: null\n\n")
    assert events_of(served, run, last_id=last)[0] == []
    for each in staying[1:]:
        each.close()
    bound = Bound(10)
    while True:  # until the server has seen that they are gone
        another = served_stream(served, run, "")
        first = another.stream.readline()
        another.close()
        if first == b"retry: 1000\n":
            break
        bound.check(first)
    staying[0].close()


def test_streams_that_stay_leave_a_browser_connections_for_pages():
    """It opens six to a host: one page and one picture come while all streams stay."""
    assert 6 - MOST_STREAMS >= 2


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
        return found, "over" if at >= len(texts) else "wait"

    monkeypatch.setattr(live.Watched, "look", look_and_write)
    # The reader has left before the next look.
    monkeypatch.setattr(live, "PAUSE_S", HANG_S)
    monkeypatch.setattr(live, "LONGEST_PAUSE_S", HANG_S)
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


def test_a_folder_that_is_removed_while_a_look_asks_for_the_state_is_told(
    written, supervised, served, monkeypatch, tmp_path
):
    """Without its supervisor's lock the run looks as if it were over, with all its lines told."""
    from jobs.runs import supervision

    run = add_running(written, supervised)
    is_supervised, is_told = supervision.is_supervised, threading.Event()

    def remove_and_ask(folder):
        if is_told.is_set() and folder.is_dir():
            folder.rename(tmp_path / "removed")
        return is_supervised(folder)

    monkeypatch.setattr(supervision, "is_supervised", remove_and_ask)
    served.enter()
    connection = served_stream(served, run, "")
    assert "data" in next_event(connection)
    is_told.set()
    event = next_event(connection)
    connection.close()
    assert event["event"] == "lost", event
    assert f"run {run} was removed" in event["data"]


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
