"""Collects the lineage of a run's model: its data, code, image and final figures."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

from jobs.contracts.spec import RunHandle
from jobs.datasets.lineage import InputUsed, Lineage, fits
from jobs.engines.base import Runs
from jobs.runs.code import travelling
from jobs.runs.report import read_report

MOST_FIGURES = 50


def lineage_of(handle: RunHandle, output: str, store: Runs) -> Lineage:
    """Read a run's record and results; downloads its figures where they are not here."""
    store.bring(handle)
    record = store.record(handle)
    spec = record.plan.spec
    report = read_report(store.status(handle), None)
    inputs = {
        name: InputUsed(
            dataset=each.dataset.name, version=each.dataset.version, digest=each.dataset.digest
        )
        for name, each in sorted(spec.inputs.items())
    }
    figures = {
        each.label: each.last
        for each in report.metrics
        if math.isfinite(each.last) and fits(each.label)
    }
    return Lineage(
        run=handle.id,
        stack=spec.stack,
        job=spec.name,
        output=output,
        inputs=inputs,
        code_digest=code_digest(Path(handle.run_dir, "code")),
        commit=record.git.commit if record.git else None,
        is_changed=bool(record.git and record.git.dirty_diff),
        image=spec.image,
        image_digest=record.image_digest,
        figures=dict(list(figures.items())[:MOST_FIGURES]),
    )


def code_digest(folder: Path) -> str | None:
    """Digest the run's copy of the code: a line a file, by path; None where it is not here."""
    if not folder.is_dir():
        return None
    found: dict[str, str] = {}
    for entry in travelling(folder, (), ()):
        if entry.kind == "file":
            with (folder / entry.name).open("rb") as file:
                found[entry.name] = hashlib.file_digest(file, "sha256").hexdigest()
        elif entry.kind == "link":
            found[entry.name] = f"-> {entry.aim}"
    lines = "".join(f"{each} {name}\n" for name, each in sorted(found.items()))
    return hashlib.sha256(os.fsencode(lines)).hexdigest()
