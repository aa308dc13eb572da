"""How far a run is, from whatever its program wrote."""

import json
import os

import msgspec
import pytest

from jobs.rank.places import MOST_BYTES
from jobs.runs.pace import Place
from jobs.runs.progress import MOST_HISTORY_BYTES, read_history, read_progress


def told(run_dir, text, *, changed_s=1000.0):
    path = run_dir / "progress.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    os.utime(path, (changed_s, changed_s))


def record(run_dir, *command, resume=None):
    spec = {"command": ["python", "train.py", *command], "resume": resume}
    (run_dir / "run.json").write_text(json.dumps({"plan": {"spec": spec}}))


def history(run_dir, *pairs):
    lines = [json.dumps({"time_s": time_s, "done": done}) + "\n" for time_s, done in pairs]
    (run_dir / "progress-history.jsonl").write_text("".join(lines))


def fields(progress):
    found = msgspec.structs.asdict(progress)
    pace = found.pop("pace")
    return {**found, "unit_s": None if pace is None else pace.unit_s}


def test_a_file_and_its_history_tell_steps_samples_and_their_rate(tmp_path):
    told(tmp_path, {"done": 30, "total": 100, "unit": "step", "samples_per_unit": 64}, changed_s=70)
    history(tmp_path, (10, None), (20, 5), (40, 15), (60, 25))
    assert fields(read_progress(tmp_path)) == {
        "done": 30,
        "total": 100,
        "unit": "step",
        "samples_done": 30 * 64,
        "samples_total": 6400,
        "samples_per_s": 32,
        "updated_s": 70,
        "unit_s": 2,
    }


def test_the_time_is_the_one_that_the_node_noted_where_the_file_was_brought_later(tmp_path):
    told(tmp_path, {"done": 25}, changed_s=5000)
    history(tmp_path, (10, None), (20, 5), (60, 25))
    assert read_progress(tmp_path).updated_s == 60


def test_samples_count_themselves(tmp_path):
    told(tmp_path, {"done": 5, "total": 20, "unit": "sample", "samples_per_unit": 7})
    progress = read_progress(tmp_path)
    assert (progress.samples_done, progress.samples_total) == (5, 20)


@pytest.mark.parametrize("resume", [None, {"run": "r", "step": 3}])
def test_one_place_is_enough_for_a_run_that_began_with_nothing(tmp_path, resume):
    told(tmp_path, {"done": 5, "total": 20}, changed_s=20)
    history(tmp_path, (10, None), (20, 5))
    record(tmp_path, resume=resume)
    pace = read_progress(tmp_path).pace
    assert (pace and pace.unit_s) == (2 if resume is None else None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"total": 5}',
        '{"done": -1}',
        '{"done": NaN}',
        '{"done": Infinity}',
        '{"done": 1e400}',
        '{"done": 1e300}',
        f'{{"done": {"9" * 400}}}',
        '{"done": "5"}',
        '{"done": true}',
        '{"done": 5, "unit": "batch"}',
        '{"done": 5, "total": "all"}',
        "[" * 30_000,
        '{"done": 5, "x": "' + "x" * MOST_BYTES + '"}',
        "\udce9",
    ],
)
def test_what_cannot_be_is_no_progress(tmp_path, text):
    (tmp_path / "progress.json").write_bytes(text.encode(errors="surrogateescape"))
    assert read_progress(tmp_path) is None


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "link to nowhere", "huge"])
def test_what_is_no_small_file_is_not_read(tmp_path, kind):
    writers = []
    for name in ("progress.json", "progress-history.jsonl", "metrics.jsonl"):
        path = tmp_path / name
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
            writers.append(os.open(path, os.O_RDWR))  # one that writes nothing
        elif kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "huge":
            path.touch()
            os.truncate(path, 1 << 30)
        else:
            path.symlink_to("nothing")
    assert read_progress(tmp_path) is None
    for each in writers:
        os.close(each)


@pytest.mark.parametrize("total", [0, -5, 4, None, 1e300])
def test_a_total_that_cannot_be_is_unknown(tmp_path, total):
    told(tmp_path, {"done": 5, "total": total, "samples_per_unit": -1})
    progress = read_progress(tmp_path)
    assert (progress.done, progress.total, progress.samples_total) == (5, None, None)


def test_an_impossible_history_counts_for_nothing_and_torn_lines_for_themselves(tmp_path):
    path = tmp_path / "progress-history.jsonl"
    history(tmp_path, (10, None), (20, 5))
    with path.open("a") as file:
        file.write('{"time_s": 3\n{"time_s": 40, "done": 6}\n')
    assert [each.time_s for each in read_history(tmp_path)] == [10, 20, 40]
    for line in ('{"time_s": 30, "done": 7}', '{"time_s": 50, "done": -7}', '{"time_s": 1e99}'):
        good = path.read_text()
        path.write_text(f"{good}{line}\n")
        found = read_history(tmp_path)
        assert found == [] or "done" not in line
        path.write_text(good)
    path.write_bytes(b" " * (MOST_HISTORY_BYTES + 1))
    assert read_history(tmp_path) == []


def metrics(run_dir, *lines, changed_s=1000.0):
    path = run_dir / "metrics.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    os.utime(path, (changed_s, changed_s))


def line(second, **place):
    return {"ts": f"1970-01-01T00:00:{second:02}Z", "name": "loss", "value": 1, **place}


@pytest.mark.parametrize(
    ("words", "done", "unit", "total", "unit_s"),
    [
        (("--epochs", "10"), 2, "epoch", 10, 20),
        (("--num_train_epochs=10",), 2, "epoch", 10, 20),
        (("--epochs", "10", "--max-steps", "500"), 200, "step", 500, 0.2),
        ((), 200, "step", None, 0.2),
        (("--epochs", "-1"), 200, "step", None, 0.2),
        (("--epochs", "1.5", "--steps"), 200, "step", None, 0.2),
    ],
)
def test_metrics_tell_steps_or_epochs_up_to_what_the_arguments_say(
    tmp_path, words, done, unit, total, unit_s
):
    record(tmp_path, *words)
    metrics(tmp_path, line(10, step=100, epoch=1), line(30, step=200, epoch=2), changed_s=30)
    found = read_progress(tmp_path)
    assert (found.done, found.unit, found.total, found.updated_s) == (done, unit, total, 30)
    assert found.pace.unit_s == pytest.approx(unit_s)


def test_metrics_without_times_tell_how_far_it_is_and_no_pace(tmp_path):
    metrics(tmp_path, *({"epoch": n, "name": "x", "value": 1} for n in (1, 2)), changed_s=70)
    found = read_progress(tmp_path)
    assert (found.done, found.unit, found.updated_s, found.pace) == (2, "epoch", 70, None)


def test_of_long_metrics_the_beginning_and_the_end_are_read(tmp_path):
    record(tmp_path, "--steps", "100000")
    lines = [
        {**line(0), "ts": f"1970-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z", "step": n}
        for n in range(10_000)
    ]
    metrics(tmp_path, *lines, changed_s=9999)
    found = read_progress(tmp_path)
    assert (found.done, found.total, found.pace.unit_s) == (9999, 100_000, 1)


def test_metrics_with_lines_of_anything_are_passed_over(tmp_path):
    metrics(
        tmp_path, [1], "x", {"step": -5}, {"step": 1e99}, {"ts": [[]], "step": 3}, {"step": "4"}
    )
    found = read_progress(tmp_path)
    assert (found.done, found.pace) == (3, None)


def test_the_progress_file_comes_before_the_metrics(tmp_path):
    metrics(tmp_path, line(10, step=100))
    told(tmp_path, {"done": 7})
    assert read_progress(tmp_path).done == 7


def test_a_place_is_an_amount_or_a_beginning(tmp_path):
    history(tmp_path, (10, None), (20, 5))
    assert read_history(tmp_path) == [Place(time_s=10, done=None), Place(time_s=20, done=5)]
