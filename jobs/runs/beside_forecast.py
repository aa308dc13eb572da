"""Compare a run with the forecast that it was started with, and say where its time went (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from jobs.contracts.spec import RunState, RunStatus
from jobs.foresight.work import RESTARTS, TRAINING, Limit
from jobs.host import console
from jobs.host.console import count_text, duration_text
from jobs.runs.forecast_file import KeptForecast
from jobs.runs.lengths import Unit
from jobs.runs.outcome import AttemptBrief, parse_time
from jobs.runs.progress import Progress

# A part of the time that is shorter explains nothing.
_LEAST_SHARE = 0.005
Figure = Literal["rate", "time", "cost"]
# Kinds of time that a forecast and a run both tell, and the forecast's parts that each is made of.
START, PAUSES, STALLS = "start and end", "checkpoints and evaluation", "stalls"
_KINDS: Mapping[str, tuple[str, ...]] = {
    TRAINING: (TRAINING,),
    START: (Limit.START, Limit.DATA),
    PAUSES: (Limit.CHECKPOINTS, Limit.EVALUATION),
    RESTARTS: (RESTARTS,),
    STALLS: (),
}


class Compared(Struct, frozen=True, kw_only=True):
    """A predicted figure with its 90 % band beside the actual one."""

    figure: Figure
    predicted: float
    low: float | None
    high: float | None
    actual: float

    @property
    def off(self) -> float:
        """The actual figure's distance, as a part of the predicted one."""
        return self.actual / self.predicted - 1

    @property
    def is_within(self) -> bool | None:
        """Tell whether the band holds the actual figure; None without a band."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.actual <= self.high


class Part(Struct, frozen=True, kw_only=True):
    """A part of the time that all attempts ran, by what the run recorded; `kind` is that of ComparedPart."""

    what: str
    seconds: float
    kind: str


class ComparedPart(Struct, frozen=True, kw_only=True):
    """The predicted seconds of a kind of time beside the actual ones."""

    kind: str
    predicted_s: float
    actual_s: float

    @property
    def more_s(self) -> float:
        """Seconds that it took longer."""
        return self.actual_s - self.predicted_s


class BesideForecast(Struct, frozen=True, kw_only=True):
    """Forecast of a run that is over, what came of it, and the parts of its time.

    `differences` compare the parts, the largest difference first.
    """

    predicted: KeptForecast
    figures: list[Compared]
    parts: list[Part]
    differences: list[ComparedPart]
    num_attempts: int


def beside_forecast(
    forecast: KeptForecast,
    status: RunStatus,
    attempts: Sequence[AttemptBrief],
    progress: Progress | None,
    *,
    samples_per_s: float | None,
    cost: float | None,
) -> BesideForecast | None:
    """Compare what is known of both; None for a run that is not over or never ran.

    `samples_per_s` is the rate that the program measured itself. Time and cost are those of a whole
    training: of a run that did not complete only its rate is compared.
    """
    ended = [each for each in attempts if each.ended]
    if not status.state.is_terminal() or not ended:
        return None
    ran_s = sum(_ran_s(each) for each in ended)
    figures = [_rate(forecast, progress, samples_per_s)]
    parts = _parts(progress, ran_s, ended[-1]) if progress is not None else []
    differences: list[ComparedPart] = []
    if status.state is RunState.COMPLETED:
        times = (forecast.time_s, forecast.time_low_s, forecast.time_high_s)
        costs = (forecast.cost, forecast.cost_low, forecast.cost_high)
        figures += [_compared("time", *times, ran_s), _compared("cost", *costs, cost)]
        differences = _differences(forecast.parts, parts)
    return BesideForecast(
        predicted=forecast,
        figures=[each for each in figures if each is not None],
        parts=parts,
        differences=differences,
        num_attempts=len(attempts),
    )


def _rate(
    forecast: KeptForecast, progress: Progress | None, samples_per_s: float | None
) -> Compared | None:
    """Compare the rates, in samples where the program tells them, else in its own unit."""
    if forecast.unit == "sample":
        predicted = forecast.samples_per_s
        actual = samples_per_s or (progress.samples_per_s if progress else None)
    else:
        predicted, actual = forecast.units_per_s, None
        if progress is not None and progress.pace and progress.unit == forecast.unit:
            actual = 1 / progress.pace.unit_s if progress.pace.unit_s > 0 else None
    return _compared("rate", predicted, forecast.low, forecast.high, actual)


def _differences(predicted: Mapping[str, float], parts: Sequence[Part]) -> list[ComparedPart]:
    """Compare the time of each kind; none where either side tells no parts."""
    if not predicted or not parts:
        return []
    found = [
        ComparedPart(
            kind=kind,
            predicted_s=sum(predicted.get(name, 0.0) for name in names),
            actual_s=sum(each.seconds for each in parts if each.kind == kind),
        )
        for kind, names in _KINDS.items()
    ]
    found = [each for each in found if each.predicted_s or each.actual_s]
    return sorted(found, key=lambda each: abs(each.more_s), reverse=True)


def _compared(
    figure: Figure,
    predicted: float | None,
    low: float | None,
    high: float | None,
    actual: float | None,
) -> Compared | None:
    if not predicted or actual is None:
        return None
    return Compared(figure=figure, predicted=predicted, low=low, high=high, actual=actual)


def _ran_s(attempt: AttemptBrief) -> float:
    ended = parse_time(attempt.ended or attempt.started)
    return max((ended - parse_time(attempt.started)).total_seconds(), 0.0)


def _parts(progress: Progress, ran_s: float, last: AttemptBrief) -> list[Part]:
    """Divide the time by the places that the run passed; the rest of it is training."""
    pace = progress.pace
    if pace is None:
        return []
    ended_s = parse_time(last.ended or last.started).timestamp()
    pauses = f"{count_text(pace.num_pauses, 'regular pause')} (evaluation)"
    known = (
        ("start-up", START, pace.start_up_s),
        ("warm-up", START, pace.warm_up_s),
        (pauses, PAUSES, pace.num_pauses * pace.pause_s),
        ("stalls", STALLS, pace.stalls_s),
        ("steps done again", RESTARTS, pace.redone_s),
        ("after the last step", START, max(ended_s - progress.updated_s, 0.0)),
    )
    parts = [
        Part(what=what, seconds=seconds, kind=kind) for what, kind, seconds in known if seconds > 0
    ]
    rest_s = ran_s - sum(each.seconds for each in parts)
    return [Part(what=TRAINING, seconds=rest_s, kind=TRAINING), *parts] if rest_s >= 0 else []


def comparison_text(beside: BesideForecast, currency: str | None) -> str:
    """Lay out predicted and actual figures, what was to bind, and the parts of the time."""
    unit = beside.predicted.unit
    rows = [_row(each, currency, unit) for each in beside.figures]
    lines = [console.table(["FORECAST", "PREDICTED", "90 % BAND", "ACTUAL", "OFF"], rows)]
    if beside.predicted.binds:
        lines.append(f"was to bind: {beside.predicted.binds}")
    total_s = sum(each.seconds for each in beside.parts)
    told = [
        f"{each.what} {duration_text(each.seconds)} ({each.seconds / total_s:.0%})"
        for each in beside.parts
        if each.seconds > _LEAST_SHARE * total_s
    ]
    if told:
        lines.append(f"the time was: {', '.join(told)}")
    if beside.differences:
        rows = [_difference_row(each) for each in beside.differences]
        lines += ["", console.table(["PART", "PREDICTED", "ACTUAL", "DIFFERENCE"], rows)]
    if beside.num_attempts > 1:
        lines.append(f"{beside.num_attempts} attempts ran, and their start-ups are among this")
    return "\n".join(lines)


def _difference_row(part: ComparedPart) -> list[str]:
    sign = "-" if part.more_s < 0 else "+"
    times = [duration_text(each) for each in (part.predicted_s, part.actual_s, abs(part.more_s))]
    return [part.kind, times[0], times[1], f"{sign}{times[2]}"]


def _row(compared: Compared, currency: str | None, unit: Unit) -> list[str]:
    def text(value: float) -> str:
        if compared.figure == "time":
            return duration_text(value)
        word = f"{unit}s/s" if compared.figure == "rate" else currency or ""
        return f"{value:,.4g} {word}".rstrip()

    low, high = compared.low, compared.high
    band = "" if low is None or high is None else f"{text(low)} - {text(high)}"
    verdict = "" if compared.is_within is not False else ", outside the band"
    shown = [compared.figure, text(compared.predicted), band, text(compared.actual)]
    return [*shown, f"{compared.off:+.0%}{verdict}"]
