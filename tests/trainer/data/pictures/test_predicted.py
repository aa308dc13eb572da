"""Predictions of files become a table and pictures, whatever the files are named."""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image

from trainer.data.pictures.predicted import find_files, tell_classes, tell_rows


def test_a_row_names_the_five_surest_classes(tmp_path):
    Image.new("RGB", (60, 40)).save(tmp_path / "a.png")
    shares = [(0, [0.1, 0.3, 0.05, 0.2, 0.15, 0.12, 0.08])]
    files = find_files(tmp_path / "a.png", max_corrupt=0)
    (row,) = tell_classes(files, shares, "abcdefg", tmp_path)
    assert list(row.values())[1::2] == ["b", "d", "e", "f", "a"]


def test_a_name_that_is_not_utf_8_is_told_with_its_bytes_escaped(tmp_path):
    place, folder = tmp_path / "photos", tmp_path / "predictions"
    named = place / os.fsdecode(b"caf\xe9")
    for name in (named / "a.png", place / "é.png"):
        name.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (60, 40)).save(name)
    folder.mkdir()
    said: list[str] = []

    def look(place: Path) -> str:
        files = find_files(place, max_corrupt=0)
        shares = [(index, [0.75, 0.25]) for index in range(len(files.paths))]
        rows = tell_classes(files, shares, ["cat", "dog"], folder)
        tell_rows(rows, files, folder, say=said.append)
        return (folder / "predictions.csv").read_text(encoding="utf-8")

    header = "picture,class,probability,class_2,probability_2\n"
    cells = ",cat,0.7500,dog,0.2500\n"
    rows = sorted([f"caf\\xe9/a.png{cells}", f"é.png{cells}"])
    found = look(place).splitlines(keepends=True)
    assert (found[0], sorted(found[1:])) == (header, rows)
    assert "".join(said).encode().count(rb"caf\xe9/a.png") == 1

    odd = named.rename(place / os.fsdecode(b"\xff")) / "a.png"
    odd = odd.rename(place / os.fsdecode(b"\xff.png"))
    assert look(odd) == f"{header}\\xff.png{cells}"
