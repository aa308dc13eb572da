"""Compare a run with the forecast that it was started with, and say where its time went (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from jobs.contracts.spec import RunState, RunStatus
from jobs.host import console
from jobs.host.console import count_text, duration_text
from jobs.runs.forecast_file import KeptForecast
from jobs.runs.outcome import AttemptBrief, parse_time
from jobs.runs.progress import Progress

# A part of the time that is shorter explains nothing.
_LEAST_SHARE = 0.005
Figure = Literal["rate", "time", "cost"]


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
    """A part of the time that all attempts ran, by what the run recorded."""

    what: str
    seconds: float


class BesideForecast(Struct, frozen=True, kw_only=True):
    """Forecast of a run that is over, what came of it, and the parts of its time."""

    predicted: KeptForecast
    figures: list[Compared]
    parts: list[Part]
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
    rate = samples_per_s or (progress.samples_per_s if progress else None)
    figures = [_compared("rate", forecast.samples_per_s, forecast.low, forecast.high, rate)]
    if status.state is RunState.COMPLETED:
        times = (forecast.time_s, forecast.time_low_s, forecast.time_high_s)
        costs = (forecast.cost, forecast.cost_low, forecast.cost_high)
        figures += [_compared("time", *times, ran_s), _compared("cost", *costs, cost)]
    return BesideForecast(
        predicted=forecast,
        figures=[each for each in figures if each is not None],
        parts=_parts(progress, ran_s, ended[-1]) if progress is not None else [],
        num_attempts=len(attempts),
    )


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
    known = {
        "start-up": pace.start_up_s,
        "warm-up": pace.warm_up_s,
        f"{count_text(pace.num_pauses, 'regular pause')} (evaluation)": pace.num_pauses
        * pace.pause_s,
        "stalls": pace.stalls_s,
        "steps done again": pace.redone_s,
        "after the last step": max(ended_s - progress.updated_s, 0.0),
    }
    parts = [Part(what=what, seconds=seconds) for what, seconds in known.items() if seconds > 0]
    rest_s = ran_s - sum(each.seconds for each in parts)
    return [Part(what="training", seconds=rest_s), *parts] if rest_s >= 0 else []


def comparison_text(beside: BesideForecast, currency: str | None) -> str:
    """Lay out predicted and actual figures, what was to bind, and the parts of the time."""
    rows = [_row(each, currency) for each in beside.figures]
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
    if beside.num_attempts > 1:
        lines.append(f"{beside.num_attempts} attempts ran, and their start-ups are among this")
    return "\n".join(lines)


def _row(compared: Compared, currency: str | None) -> list[str]:
    def text(value: float) -> str:
        if compared.figure == "time":
            return duration_text(value)
        unit = "samples/s" if compared.figure == "rate" else currency or ""
        return f"{value:,.4g} {unit}".rstrip()

    low, high = compared.low, compared.high
    band = "" if low is None or high is None else f"{text(low)} - {text(high)}"
    verdict = "" if compared.is_within is not False else ", outside the band"
    shown = [compared.figure, text(compared.predicted), band, text(compared.actual)]
    return [*shown, f"{compared.off:+.0%}{verdict}"]
