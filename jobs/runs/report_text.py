"""Lay out the reports of runs as a table and remarks (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from jobs.host import console
from jobs.runs.figures import Figure, value_text
from jobs.runs.outcome import headline, run_time_s
from jobs.runs.report import RunReport

NO_METRICS = "has no metrics to draw; a script writes them to metrics.jsonl (docs/run-directory.md)"


class _Column(Struct, frozen=True):
    """Hold a column of the table; a narrow terminal drops the one with the lowest `goes` first."""

    header: str
    cells: list[str]
    goes: int | None = None
    is_number: bool = True

    @property
    def is_told(self) -> bool:
        return any(cell not in ("", "-") for cell in self.cells)


def report_table(reports: Sequence[RunReport], ids: Mapping[str, str]) -> str:
    """Lay out runs, one a row: last and best value of their main figures, then loss and rate.

    Runs of different programs have different main figures, and each has its columns. `ids` are the
    runs' ids as they are shown.
    """
    mains = _unique(each.figures.main for each in reports)
    losses = [each for each in _unique(_loss_of(each) for each in reports) if each not in mains]
    states = [each.status.state.value for each in reports]
    columns = [
        _Column("RUN", [ids[each.status.id] for each in reports], is_number=False),
        _Column("NAME", [each.status.name for each in reports], 7, is_number=False),
        _Column("DIFFERS", [_differs_beside_name(each) for each in reports], is_number=False),
        _Column("STATE", states, 4, is_number=False),
        _Column("RANKS", [str(each.status.world_size) for each in reports], 1),
        _Column("EPOCHS", [_text(each.figures.epochs, "g") for each in reports], 2),
        *(column for label in mains for column in _main_columns(label, reports, mains[0])),
        *(_Column(each.upper(), _last(each, reports), 5) for each in losses),
        _Column("IMAGES/S", [_text(each.figures.images_per_s, ",.0f") for each in reports], 0),
        _Column("DATA WAIT", [_wait(each) for each in reports], -1),
        _Column("TIME", [_time(each) for each in reports], 3),
    ]
    # Programs that tell neither epochs nor a rate have no such columns.
    told = [each for each in columns if each.is_told]
    going = sorted((each.goes, at) for at, each in enumerate(told) if each.goes is not None)
    return console.table(
        [each.header for each in told],
        list(zip(*(each.cells for each in told), strict=True)),
        right=[at for at, each in enumerate(told) if each.is_number],
        gives_way=[at for _, at in going],
    )


def differs_text(report: RunReport) -> str:
    """Word what tells a run from those that it is compared with: `digits lr=0.1 nodes=2`."""
    name = report.differs.get("name", "")
    return f"{name} {_differs_beside_name(report)}".strip()


def _differs_beside_name(report: RunReport) -> str:
    return " ".join(f"{key}={value}" for key, value in report.differs.items() if key != "name")


def remarks(reports: Sequence[RunReport]) -> list[str]:
    """Say what the table cannot: why a run did not complete, and which left no metrics."""
    found: list[str] = []
    for report in reports:
        if report.status.state.is_terminal() and report.status.exit_code != 0:
            found.append(headline(report.status, report.error))
        if not report.curves:
            found.append(f"{report.status.id} {NO_METRICS}")
    return found


def _main_columns(label: str, reports: Sequence[RunReport], first: str) -> list[_Column]:
    goes, best_goes = (None, 9) if label == first else (8, 6)
    best = [
        "-" if each is None or each.best is None else value_text(each.best, each.name)
        for each in _found(label, reports)
    ]
    return [_Column(label.upper(), _last(label, reports), goes), _Column("BEST", best, best_goes)]


def _unique(figures: Iterable[Figure | None]) -> list[str]:
    return list(dict.fromkeys(each.label for each in figures if each is not None))


def _loss_of(report: RunReport) -> Figure | None:
    """Find the loss of the split that the main figure is of."""
    main = report.figures.main
    wanted = (main.split, "loss") if main else None
    return next((each for each in report.metrics if (each.split, each.name) == wanted), None)


def _last(label: str, reports: Sequence[RunReport]) -> list[str]:
    found = _found(label, reports)
    return ["-" if each is None else value_text(each.last, each.name) for each in found]


def _found(label: str, reports: Sequence[RunReport]) -> list[Figure | None]:
    return [next((each for each in run.metrics if each.label == label), None) for run in reports]


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _wait(report: RunReport) -> str:
    wait_s = report.figures.data_wait_s
    return "-" if wait_s is None else f"{wait_s * 1000:,.1f} ms"


def _time(report: RunReport) -> str:
    time_s = run_time_s(report.status)
    return "-" if time_s is None else console.duration_text(time_s)
