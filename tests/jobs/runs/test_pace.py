"""The time left of runs that warm up, evaluate, stall and begin again, by a clock of their own."""

from dataclasses import dataclass

import pytest

from jobs.runs.outlook import outlook, share_text
from jobs.runs.pace import Pace, Place, pace_of
from jobs.runs.progress import Progress
from tests.seeds import dice


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training of `total` steps of `step_s`, and what keeps it from going on evenly.

    It falls back from a step to another one, and is away for `away_s`. Of `stalls` each is a step and
    its seconds. From `slower_from_s` on steps take half as long again.
    """

    total: int = 2000
    step_s: float = 0.3
    noise: float = 0.1
    start_s: float = 30.0
    first_step_s: float = 0.0
    epoch: int | None = None
    evaluation_s: float = 0.0
    stalls: tuple[tuple[int, float], ...] = ()
    back: tuple[int, int] | None = None
    away_s: float = 60.0
    slower_from_s: float | None = None
    tells_its_start: bool = False

    def places(self, seed: int) -> list[Place]:
        """Every place that it passes; the last one is its end."""
        rng, now_s, done = dice(seed), 0.0, 0
        found = [Place(time_s=now_s, done=None)]
        now_s += self.start_s
        if self.tells_its_start:
            found.append(Place(time_s=now_s, done=0))
        is_first, back = True, self.back
        while done < self.total:
            slower = self.slower_from_s is not None and now_s > self.slower_from_s
            now_s += self.step_s * rng.lognormvariate(0, self.noise) * (1.5 if slower else 1)
            now_s += self.first_step_s if is_first else 0
            done, is_first = done + 1, False
            found.append(Place(time_s=now_s, done=done))
            now_s += sum(seconds for step, seconds in self.stalls if step == done)
            if self.epoch and done % self.epoch == 0:
                now_s += self.evaluation_s * rng.lognormvariate(0, 0.05)
            if back and done == back[0]:
                now_s += self.away_s
                found.append(Place(time_s=now_s, done=None))
                now_s += self.start_s
                done, is_first, back = back[1], True, None
        return [*found, Place(time_s=now_s, done=done)]


RUNS = {
    "steady": Run(),
    "noisy": Run(noise=0.6),
    "long": Run(total=30_000, step_s=1.0),
    "short": Run(total=300, step_s=0.1, start_s=5.0),
    "few slow steps": Run(total=40, step_s=20.0),
    "a first step that compiles": Run(first_step_s=40.0),
    "an evaluation after each of 5 epochs": Run(epoch=400, evaluation_s=60.0),
    "of 3": Run(epoch=666, evaluation_s=100.0),
    "of 10": Run(epoch=200, evaluation_s=30.0),
    "of 90": Run(total=9000, step_s=0.1, epoch=100, evaluation_s=10.0),
    "that takes longer than the steps": Run(total=1000, step_s=0.2, epoch=100, evaluation_s=60.0),
    "evaluations and a compilation": Run(epoch=400, evaluation_s=60.0, first_step_s=40.0),
    "a stall": Run(stalls=((500, 150.0),)),
    "a stall among evaluations": Run(epoch=250, evaluation_s=20.0, stalls=((600, 150.0),)),
    "checkpoints without a beat": Run(
        stalls=tuple((step, 8.0) for step in (130, 310, 400, 690, 820, 1100, 1290, 1500, 1777))
    ),
    "resumed from a checkpoint": Run(back=(800, 700)),
    "begun from nothing again": Run(back=(300, 0), away_s=200.0),
    "resumed, with evaluations": Run(back=(900, 800), epoch=400, evaluation_s=40.0),
    "slower from a time on": Run(slower_from_s=100.0),
    "one unit an epoch": Run(total=4, step_s=300.0, noise=0.03, tells_its_start=True),
}


def seen(places: list[Place], until_s: float) -> tuple[list[Place], Place]:
    """The places that jobs/rank/places.py notes, and the one that the file tells at the time."""
    noted: list[Place] = []
    begun_s, written_s = 0.0, float("-inf")
    last = places[0]
    for place in places:
        if place.time_s > until_s:
            break
        if place.done is None:
            begun_s, written_s = place.time_s, float("-inf")
            noted.append(place)
            continue
        if place.time_s - written_s < 1.0:
            continue
        written_s, last = place.time_s, place
        gap_s = max(2.0, (place.time_s - begun_s) / 100)
        if noted[-1].done is None or place.time_s - noted[-1].time_s >= gap_s:
            noted.append(place)
    return noted, last


def error_at(run: Run, seed: int, part: float) -> float:
    """How far off the time left is at a part of the time, as a part of the time that is left."""
    places = run.places(seed)
    end_s = places[-1].time_s
    now_s = part * end_s
    noted, last = seen(places, now_s)
    told = [*noted, last] if noted[-1].time_s < last.time_s else noted
    progress = Progress(
        done=last.done,
        total=run.total,
        unit="step",
        samples_done=None,
        samples_total=None,
        samples_per_s=None,
        updated_s=last.time_s,
        pace=pace_of(told, per_epoch=run.epoch, from_zero=True),
    )
    left_s = outlook(progress, now_s=now_s, is_on=True).left_s
    return left_s / (end_s - now_s) - 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_at_half_time_the_time_left_is_right_within_a_tenth(seed):
    off = {name: error_at(run, seed, 0.5) for name, run in RUNS.items()}
    assert len(off) == 20
    assert [name for name, error in off.items() if abs(error) > 0.1] == []


@pytest.mark.parametrize(
    ("run", "error"),
    [
        # Nobody has seen yet how long the first evaluation takes.
        (Run(epoch=1000, evaluation_s=120.0), -0.35),
        # A stall that is under way may end at once.
        (Run(stalls=((900, 150.0),)), -0.2),
    ],
)
def test_a_pause_of_a_new_kind_that_is_under_way_is_not_foreseen(run, error):
    assert error_at(run, 1, 0.5) == pytest.approx(error, abs=0.03)


def steps(done, *, unit_s=1.0):
    told = {"samples_done": None, "samples_total": None, "samples_per_s": None}
    pace = Pace(unit_s=unit_s)
    return Progress(done=done, total=1000, unit="step", updated_s=0.0, pace=pace, **told)


@pytest.mark.parametrize(
    ("unit_s", "now_s", "silent_s"),
    [(30.0, 150.0, None), (30.0, 151.0, 151.0), (1.0, 105.0, None), (1.0, 106.0, 106.0)],
)
def test_silence_of_a_minute_and_three_units_is_told(unit_s, now_s, silent_s):
    view = outlook(steps(900, unit_s=unit_s), now_s=now_s, is_on=True)
    assert (view.silent_s, view.left_s) == (silent_s, 100 * unit_s - max(unit_s, 15.0))
    assert outlook(steps(900, unit_s=unit_s), now_s=now_s, is_on=False).silent_s is None


@pytest.mark.parametrize(("done", "text"), [(994, "99 %"), (999, "99 %"), (1000, "100 %")])
def test_a_run_that_is_not_over_is_not_at_100_percent(done, text):
    assert share_text(outlook(steps(done), now_s=0.0, is_on=True)) == text


def at(*pairs):
    return [Place(time_s=time_s, done=done) for time_s, done in pairs]


def test_parts_of_the_time_are_told_apart():
    # 1 s a unit; two start-ups of 10 s, evaluations of 20 s, a stall of 100 s.
    minutes = [(30 + 10 * n + 20 * (n > 5) + 20 * (n > 10), 10 + 10 * n) for n in range(12)]
    minutes = [(time_s + 100 * (done > 80), done) for time_s, done in minutes]
    places = at((0, None), (10, 0), (30 - 14, None), (30 - 4, 4), *minutes)
    pace = pace_of(places, per_epoch=None, from_zero=True)
    assert pace == Pace(
        unit_s=1.0,
        pause_s=20.0,
        pause_every=50.0,
        paused_at=115.0,
        num_pauses=2,
        start_up_s=20.0,
        stalls_s=100.0,
    )
    # Of what is left from 120 to 220 there are the evaluations at 160 and 210.
    assert pace.left_s(120, 220) == 100 + 2 * 20


@pytest.mark.parametrize(
    ("places", "from_zero", "unit_s"),
    [
        ([], True, None),
        (at((0, None)), True, None),
        (at((0, None), (10, 5)), True, 2.0),
        (at((0, None), (10, 5)), False, None),  # nobody knows where it began
        (at((0, None), (10, 0)), True, None),
        (at((10, 5)), True, None),
        (at((0, None), (10, 5), (20, None), (30, 6)), True, None),
        (at((10, 5), (20, 10)), False, 2.0),
        (at((10, 5), (10, 10)), False, None),  # in no time
        (at((10, 5), (20, 5)), False, None),
        (at((10, 5), (20, 3), (22, 4)), False, 2.0),
    ],
)
def test_little_history_gives_a_pace_or_none(places, from_zero, unit_s):
    pace = pace_of(places, per_epoch=None, from_zero=from_zero)
    assert (None if pace is None else pace.unit_s) == unit_s


def test_slow_first_units_of_an_attempt_are_its_warm_up():
    first = [(0, None), (10, 0), (28, 10), (38, 20), (48, 30), (58, 40)]
    again = [(70, None), (80, 40), (100, 50), (110, 60), (120, 70)]
    pace = pace_of(at(*first, *again), per_epoch=None, from_zero=True)
    assert pace == Pace(unit_s=1.0, start_up_s=20.0, warm_up_s=18.0)


def test_work_that_is_done_again_is_added_up():
    places = at((0, None), (10, 10), (20, 20), (30, None), (40, 15), (45, 20), (50, 25))
    pace = pace_of(places, per_epoch=None, from_zero=True)
    assert (pace.unit_s, pace.redone_s, pace.start_up_s) == (1.0, 5.0, 20.0)


def test_an_evaluation_that_an_attempt_did_again_is_one_place_of_a_beat():
    # Killed behind the evaluation at 40, and begun at 20 again: 1 s a unit, evaluations of 30 s.
    first = [(0, None), (10, 0), (20, 10), (30, 20), (40, 30), (80, 40), (90, 50)]
    again = [(100, None), (110, 20), (120, 30), (160, 40), (170, 50)]
    places = at(*first, *again)
    pace = pace_of(places, per_epoch=40, from_zero=True)
    assert (pace.pause_s, pace.pause_every, pace.num_pauses) == (30.0, 40, 2)
    assert pace.left_s(50, 120) == 70 + 2 * 30
    # Nobody told of epochs: it may have come twice by chance.
    unannounced = pace_of(places, per_epoch=None, from_zero=True)
    assert (unannounced.pause_every, unannounced.stalls_s) == (None, 60.0)


def test_evaluations_behind_the_place_that_an_attempt_fell_back_to_come_again():
    pace = Pace(unit_s=1.0, pause_s=20.0, pause_every=50.0, paused_at=115.0, num_pauses=2)
    assert pace.left_s(20, 120) == 100 + 2 * 20
