"""Read tables of measured and asked sizes from CSV, and refuse cells that are no figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from math import exp, log
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.foresight.check import Found, check_asked, check_measured
from jobs.foresight.rows import Row
from jobs.host.untrusted import read_small

REQUIRED = ("series", "gpus", "gpus_per_node")
OPTIONAL = ("gradient_mb", "batch_per_gpu", "overhead_s", "fabric")
MOST_BYTES = 4 << 20
MOST_ROWS = 500  # the fit of so many takes seconds
MOST_GPUS = 1 << 20
MOST_LETTERS = 120
LEAST, MOST = 1e-9, 1e12  # of any figure; the model computes with those between
# Two rows of one size may differ by this factor; their geometric mean counts.
MOST_APART = 1.1


def read_measured(path: Path) -> list[Row]:
    """Read rows with a rate, one for each size; raises LaunchError."""
    lines = _read(path, is_measured=True)
    rows = _without_repeats(path, lines)
    _refuse(path, check_measured(rows))
    return [row for _, row in rows]


def read_asked(path: Path, measured: Sequence[Row]) -> list[Row]:
    """Read rows without a rate, each of a measured series; raises LaunchError."""
    fabrics: dict[str, set[str]] = {row.series: set() for row in measured}
    for row in measured:
        if row.gpus > 1:
            fabrics[row.series].add(row.fabric)
    lines = _read(path, is_measured=False)
    for line, row in lines:
        if row.series not in fabrics:
            known = ", ".join(sorted(fabrics)[:5])
            message = f"no rate of the series {row.series!r} was measured"
            raise _error(path, line, "series", message, f"measured are: {known}")
        given = fabrics[row.series] - {""}
        if not row.fabric and len(given) > 1:
            message = f"the series {row.series!r} was measured on several fabrics"
            hint = f"fill the column fabric with one of {', '.join(sorted(given))}"
            raise _error(path, line, "fabric", message, hint)
    _refuse(path, check_asked(lines, measured))
    return [row for _, row in lines]


def _refuse(path: Path, found: Found | None) -> None:
    if found:
        raise _error(path, found.line, found.column, found.message, found.hint)


def _read(path: Path, *, is_measured: bool) -> list[tuple[int, Row]]:
    columns = (*REQUIRED, "rate", *OPTIONAL) if is_measured else (*REQUIRED, *OPTIONAL)
    needed = columns[: 4 if is_measured else 3]
    try:
        text = read_small(path, MOST_BYTES).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [each.strip().lower() for each in next(reader, list[str]())]
        _check_header(path, header, columns, needed)
        found: list[tuple[int, Row]] = []
        for cells in reader:
            if not any(each.strip() for each in cells):
                continue
            if len(found) == MOST_ROWS:
                hint = f"keep at most {MOST_ROWS} rows"
                raise _error(path, reader.line_num, "", "the table is too long", hint)
            found.append((reader.line_num, _row(path, reader.line_num, header, cells)))
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise LaunchError(message, hint="name a CSV file") from None
    except UnicodeDecodeError:
        message = f"{path} is not text in UTF-8"
        raise LaunchError(message, hint="save it as CSV in UTF-8") from None
    except csv.Error as error:
        message = f"{path} is not CSV: {error}"
        hint = "save it as CSV with commas, and quotes around cells that hold one"
        raise LaunchError(message, hint=hint) from None
    if not found:
        message = f"{path} has no rows"
        raise LaunchError(message, hint=f"the columns are {','.join(columns)}")
    return found


def _check_header(
    path: Path, header: list[str], columns: Sequence[str], needed: Sequence[str]
) -> None:
    hint = f"the first line is {','.join(needed)}, then any of {','.join(OPTIONAL)}"
    if len(header) == 1 and ";" in header[0]:
        raise _error(
            path, 1, "", "the cells are separated by semicolons", "separate them by commas"
        )
    for name in header:
        if name not in columns:
            raise _error(path, 1, _printable(name), "the column is unknown", hint)
        if header.count(name) > 1:
            raise _error(path, 1, name, "the column is there twice", hint)
    for name in needed:
        if name not in header:
            raise _error(path, 1, name, "the column is missing", hint)


def _row(path: Path, line: int, header: list[str], cells: list[str]) -> Row:
    if len(cells) != len(header):
        message = f"{len(cells)} cells under {len(header)} columns"
        raise _error(path, line, "", message, "write one cell for each column, empty or not")
    given = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}

    def number(name: str, *, least: float | None = None) -> float | None:
        text = given.get(name, "")
        if not text and name in OPTIONAL:
            return None
        try:
            value = float(text) if "_" not in text else float("nan")
        except ValueError:
            value = float("nan")
        if (LEAST if least is None else least) <= value <= MOST:
            return value
        kind = "a positive number" if least is None else f"a number from {least:g}"
        message = f"{_printable(text)!r} is not {kind} up to {MOST:g}"
        raise _error(path, line, name, message, _HINTS[name])

    def count(name: str) -> int:
        value = number(name) or 0
        if value == int(value) and value <= MOST_GPUS:
            return int(value)
        message = f"{_printable(given[name])!r} is not a whole number up to {MOST_GPUS}"
        raise _error(path, line, name, message, _HINTS[name])

    return Row(
        series=_name(path, line, "series", given),
        gpus=count("gpus"),
        gpus_per_node=count("gpus_per_node"),
        rate=number("rate") if "rate" in header else None,
        gradient_mb=number("gradient_mb"),
        batch_per_gpu=number("batch_per_gpu"),
        overhead_s=number("overhead_s", least=0),
        fabric=_name(path, line, "fabric", given),
    )


_HINTS = {
    "gpus": "write the GPUs of the whole job",
    "gpus_per_node": "write the GPUs of one node",
    "rate": "write the samples per second of all GPUs together",
    "gradient_mb": "write 4 bytes a parameter in fp32, in MB; or leave it empty",
    "batch_per_gpu": "write the samples of one GPU in a step, or leave it empty",
    "overhead_s": "write the seconds of a step that the rate of one GPU lacks, or leave it empty",
}


def _name(path: Path, line: int, column: str, given: dict[str, str]) -> str:
    text = given.get(column, "")
    if len(text) > MOST_LETTERS or not text.isprintable():
        message = f"{_printable(text)!r} is too long or not printable"
        raise _error(path, line, column, message, f"use at most {MOST_LETTERS} printable letters")
    if not text and column in REQUIRED:
        raise _error(path, line, column, "the cell is empty", "name the network and the hardware")
    return text


def _without_repeats(path: Path, lines: list[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """Join rows of one size by their geometric mean; refuse rows that disagree."""
    import msgspec

    found: dict[tuple[object, ...], list[tuple[int, Row]]] = {}
    for line, row in lines:
        per_node = row.gpus_per_node if row.gpus > 1 else 0
        key = (row.series, row.gpus, per_node, row.batch_per_gpu, row.fabric)
        found.setdefault(key, []).append((line, row))
    joined: list[tuple[int, Row]] = []
    for same in found.values():
        rates = [row.rate or 0.0 for _, row in same]
        if max(rates) > MOST_APART * min(rates):
            line, row = same[-1]
            message = (
                f"{row.series!r} has rates from {min(rates):g} to {max(rates):g} at {row.gpus} GPUs"
            )
            hint = f"keep the right one of the lines {', '.join(str(each) for each, _ in same)}"
            raise _error(path, line, "rate", message, hint)
        mean = exp(sum(log(each) for each in rates) / len(rates))
        joined.append((same[0][0], msgspec.structs.replace(same[0][1], rate=mean)))
    return joined


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text[:40])


def _error(path: Path, line: int, column: str, message: str, hint: str) -> LaunchError:
    where = f"{path}, line {line}" + (f", column {column}" if column else "")
    return LaunchError(f"{where}: {message}", hint=hint)
