"""A notebook as a rank's program: parameters, lines, every output kept, no port to read it by."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from jobs.contracts.spec import RunState
from jobs.rank import notebook as program
from jobs.rank.notebook import PROGRAM, notebook_command
from tests.fakes.gangs import Gangs
from tests.fakes.turned_clock import TurnedClock

TRANSPORT = """
from ipykernel.connect import get_connection_info
get_connection_info(unpack=True)["transport"]
"""

# As bars of notebooks are drawn: once, and then anew in its place.
DRAWN = """
from IPython.display import display
bar = display({"text/plain": "0 of 2"}, raw=True, display_id=True)
bar.update({"text/plain": "2 of 2"}, raw=True)
"""


def notebook(folder, *cells):
    told = [
        {
            "cell_type": "code",
            "id": f"c{at}",
            "metadata": {"tags": tags},
            "source": text,
            "outputs": [],
            "execution_count": None,
        }
        for at, (text, *tags) in enumerate(cells)
    ]
    path = folder / "train.ipynb"
    path.write_text(json.dumps({"cells": told, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.fixture
def gangs(tmp_path):
    made = Gangs(tmp_path / "workspace")
    yield made
    made.end()


def test_a_run_of_a_notebook_tells_its_lines_and_keeps_what_had_been_shown(gangs, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "beside.py").write_text("SAYS = 'beside'")
    notebook(
        code,
        ("epochs = 1\nname = 'a'", "parameters"),
        ("import beside, os\nprint(beside.SAYS, epochs, name, os.environ['RANK'])\nepochs + 1",),
        (TRANSPORT,),
        (DRAWN,),
        ("raise ValueError('no luck')",),
        ("print('never')",),
    )
    given = json.dumps({"epochs": 3, "name": "it's", "most": [1.5, float("inf"), float("nan")]})
    handle = gangs.submit(
        [PROGRAM, "train.ipynb", "${outputs.notebook}/train.ipynb", given],
        code=str(code),
        outputs=("notebook",),
        processes_per_node=1,
    )
    assert gangs.wait(handle).state is RunState.FAILED
    assert gangs.error(handle).message == "ValueError: no luck"
    assert gangs.texts(handle, 0)[:4] == ["beside 3 it's 0", "4", "'ipc'", "0 of 2"]

    kept = json.loads((tmp_path / handle.run_dir / "outputs/notebook/train.ipynb").read_text())
    sources = ["".join(each["source"]) for each in kept["cells"]]
    most = "[1.5, float('inf'), float('nan')]"
    assert sources[1] == f'epochs = 3\nname = "it\'s"\nmost = {most}'
    shown = [each["outputs"] for each in kept["cells"]]
    assert [each["output_type"] for each in shown[2]] == ["stream", "execute_result"]
    assert [each["data"] for each in shown[4]] == [{"text/plain": ["2 of 2"]}]
    assert (shown[5][0]["ename"], shown[6]) == ("ValueError", [])
    assert [each.name for each in (tmp_path / handle.run_dir / "outputs/notebook").iterdir()] == [
        "train.ipynb"
    ]


def test_what_cells_draw_without_text_is_a_sign_of_life_once_a_second(monkeypatch, capfd):
    clock = TurnedClock(monkeypatch, program)
    teller = program.Teller()
    for seconds, kind, content in [
        (0.0, "comm_msg", {"data": {"method": "update"}}),
        (0.5, "update_display_data", {"data": {"text/html": "1 of 3"}}),
        (0.5, "update_display_data", {"data": {"text/html": "2 of 3"}}),
        (0.0, "display_data", {"data": {"text/plain": "<Figure>", "image/png": ""}}),
        (9.0, "display_data", {"data": {"text/html": "<p>"}}),
        (0.0, "stream", {"text": "loading", "name": "stdout"}),
        (0.9, "comm_msg", {"data": {}}),
        (0.1, "comm_msg", {"data": {}}),
        (1.0, "clear_output", {"wait": True}),
    ]:
        clock.sleep(seconds)
        teller.tell(kind, content)
    assert capfd.readouterr().out == "\r\r<Figure>\n\rloading\n\r"


def test_an_image_that_cannot_is_told_with_what_to_add(tmp_path):
    path = notebook(tmp_path, ("1",))
    python, *words = notebook_command(sys.executable, [str(path), str(tmp_path / "out.ipynb")])
    done = subprocess.run(
        [python, "-S", *words], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: a notebook needs nbclient and ipykernel, and there is no `nbformat`\n"
        "hint: name nbclient and ipykernel in a file of the code, and add `requirements: FILE` to the job\n"
    )
