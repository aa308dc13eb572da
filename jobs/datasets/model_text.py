"""Word registered models for `launch model`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jobs.datasets.dataset_text import origin_rows, record_fields
from jobs.datasets.lineage import Lineage
from jobs.datasets.records import DatasetRecord
from jobs.host import console


def model_fields(record: DatasetRecord) -> dict[str, Any]:
    """Give a model's version as `--json` prints it."""
    return {**record_fields(record), "lineage": msgspec.to_builtins(record.lineage)}


def models_table(records: Sequence[DatasetRecord]) -> str:
    """Lay out models, one version a row, with run and main figure."""
    rows = [
        (
            record.name,
            str(record.version),
            console.size_text(record.bytes),
            record.created[:16].replace("T", " "),
            record.lineage.run if record.lineage else "",
            _main_figure(record.lineage),
        )
        for record in records
    ]
    header = ("NAME", "VERSION", "SIZE", "CREATED (UTC)", "RUN", "FIGURE")
    return console.table(header, rows, right=(1, 2), gives_way=(2, 3))


def model_text(record: DatasetRecord, places: Iterable[tuple[str, str]]) -> str:
    """Lay out a version's facts and lineage, one a line, then its places."""
    rows = [
        ("model", record.ref),
        ("files", str(record.files)),
        ("size", console.size_text(record.bytes)),
        ("created", record.created),
        ("digest", record.digest),
        *origin_rows(record),
        *(_lineage_rows(record.lineage) if record.lineage else ()),
        *places,
    ]
    return console.fields(rows)


def _lineage_rows(lineage: Lineage) -> list[tuple[str, str]]:
    commit = lineage.commit or "none"
    code = lineage.code_digest or "not on the machine that registered the model"
    image = f" ({lineage.image_digest})" if lineage.image_digest else ""
    return [
        ("run", f"{lineage.run} of stack {lineage.stack}, output {lineage.output}"),
        ("job", lineage.job),
        *(
            (f"input {name}", f"{each.ref}, digest {each.digest}")
            for name, each in lineage.inputs.items()
        ),
        ("code", code),
        ("commit", f"{commit}, with changes" if lineage.is_changed else commit),
        ("image", f"{lineage.image}{image}"),
        *((name, f"{value:g}") for name, value in lineage.figures.items()),
    ]


def _main_figure(lineage: Lineage | None) -> str:
    if lineage is None or not lineage.figures:
        return ""
    name, value = next(iter(lineage.figures.items()))
    return f"{name} {value:g}"
