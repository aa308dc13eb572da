"""Keep the forecast that a run was started with in its folder, and read it again."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from jobs.host.files import write_file
from jobs.host.untrusted import parse_json, read_small
from jobs.runs.lengths import Unit

NAME = "forecast.json"
_MOST_BYTES = 1 << 16


class KeptForecast(Struct, frozen=True, kw_only=True):
    """Rate, time and cost that were predicted, each with its 90 % band; None where unknown.

    `time_s` is from the start of the ranks to the end of the run, `cost` in the currency of the run's
    cluster. `binds` names the limit that was to bind. Of a program that tells no samples the rate is
    in `unit`s a second. `parts` are the seconds of the time by their names.
    """

    samples_per_s: float | None = None
    unit: Unit = "sample"
    units_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    time_s: float | None = None
    time_low_s: float | None = None
    time_high_s: float | None = None
    cost: float | None = None
    cost_low: float | None = None
    cost_high: float | None = None
    binds: str | None = None
    parts: dict[str, float] = {}


def write_forecast(run_dir: Path, forecast: KeptForecast) -> None:
    """Write `forecast.json` whole; raises OSError."""
    write_file(run_dir / NAME, msgspec.json.format(msgspec.json.encode(forecast)))


def read_forecast(run_dir: Path) -> KeptForecast | None:
    """Read the forecast; None where there is none, or what is there is none."""
    try:
        forecast = parse_json(read_small(run_dir / NAME, _MOST_BYTES), KeptForecast)
    except (OSError, msgspec.DecodeError):
        return None
    told = [*asdict(forecast).values(), *forecast.parts.values()]
    numbers = [each for each in told if isinstance(each, float)]
    return forecast if all(math.isfinite(each) and each >= 0 for each in numbers) else None
