"""What a notebook is as a job's script: a command with parameters, and the Python of its cells."""

from __future__ import annotations

import ast
import json
import warnings

import pytest
from msgspec.structs import replace

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import JobFile
from jobs.jobfile.notebook import code_of, is_notebook, notebook_command
from jobs.jobfile.read import CodeLocation, load_job
from jobs.jobfile.resolve import command_of, resolve
from tests.fakes.gangs import make_environment

CODE = CodeLocation(folder="/code", script="sub/train.ipynb")
JOB = JobFile(name="x", image="pytorch", script="train.ipynb")
INTO = "${outputs.notebook}/train.ipynb"


def resolved(folder, job):
    return resolve(
        job,
        environment=make_environment(folder, nodes=2, processes=4),
        datasets={},
        code=CODE,
        image_reference=str,
    )


def cells(*texts):
    told = [{"cell_type": "code", "source": each} for each in texts]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": "import a"}, *told]}).encode()


def test_it_is_one_rank_whose_output_has_the_notebook(tmp_path):
    spec = resolved(tmp_path, replace(JOB, outputs={"model": None}))
    assert spec.command == ("trainyard-notebook", "sub/train.ipynb", INTO)
    assert (spec.nodes, spec.processes_per_node) == (1, 1)
    assert spec.outputs == ("model", "notebook")


@pytest.mark.parametrize(
    ("changes", "size"),
    [({"nodes": 2}, "2 nodes x 1 process"), ({"processes_per_node": 2}, "1 node x 2 processes")],
)
def test_more_ranks_than_one_are_refused(tmp_path, changes, size):
    again = replace(JOB, script=None, command=("trainyard-notebook", "train.ipynb", "o.ipynb"))
    for job in (replace(JOB, **changes), replace(again, **{"processes_per_node": 1, **changes})):
        with pytest.raises(LaunchError) as error:
            resolved(tmp_path, job)
        assert error.value.message == f"a notebook has one kernel, and `x` has {size}"
        assert error.value.hint == "--nodes 1 --processes-per-node 1"


def test_arguments_are_parameters_of_their_types():
    args = {"batch-size": 3, "rates": [0.1, 1], "name": "3", "amp": True, "none": None}
    command = notebook_command("train.ipynb", args)
    assert command[:3] == ("trainyard-notebook", "train.ipynb", INTO)
    assert json.loads(command[3]) == {
        "batch_size": 3,
        "rates": [0.1, 1],
        "name": "3",
        "amp": True,
        "none": None,
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.ipynb").write_bytes(cells("import torch"))
    (tmp_path / "requirements.txt").write_text("nbclient\nipykernel\n")
    return tmp_path


def parameters(*words, **given):
    loaded = load_job(*words, **given)
    return json.loads(command_of(loaded.job, loaded.code)[3])


@pytest.mark.parametrize(
    ("cell", "uses"),
    [
        ("import accelerate", "Accelerate"),
        ("import torch.distributed\nimport horovod.torch", "Horovod for torch"),
        ("import torch\nhere = torch.distributed.is_available()", "torch"),
    ],
)
def test_a_notebook_is_one_process_whatever_its_cells_use(folder, cell, uses):
    (folder / "train.ipynb").write_bytes(cells(cell))
    loaded = load_job("train.ipynb")
    first, *others = loaded.sentences
    assert first == f"train.ipynb uses {uses}: image pytorch, launcher none, one process"
    assert not [each for each in others if "launcher" in each]
    assert (loaded.job.launcher, loaded.job.processes_per_node) == ("none", 1)


def test_a_notebook_with_the_pictures_that_it_has_shown_is_read(folder):
    shown = {"cell_type": "code", "source": "import torch", "outputs": [{"data": "A" * (2 << 20)}]}
    (folder / "train.ipynb").write_text(json.dumps({"nbformat": 4, "cells": [shown]}))
    assert load_job("train.ipynb").sentences[0].startswith("train.ipynb uses torch: ")


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--lr", "1e-3"], {"lr": 1e-3}),
        (["--lr", "0.90", "--decay", ".5", "--seed", "007"], {"lr": 0.9, "decay": 0.5, "seed": 7}),
        (["--shift", "-1e-3", "--at", "-4"], {"shift": -1e-3, "at": -4}),
        (["--rates", "1e-3", "5e-4", "fast"], {"rates": [1e-3, 5e-4, "fast"]}),
        (["--amp", "false", "--fast"], {"amp": False, "fast": True}),
        (["--name", "vit_b", "--path", "~", "--tag", '"3"'], {"name": "vit_b", "path": "~", "tag": '"3"'}),
        (["--most", ".inf"], {"most": float("inf")}),
        (["--epochs=3"], {"epochs": 3}),
        (["--batch-size=3", "--lr=-1e-3", "--amp", "--note=-x", "--where=a=b", "--none="], {"batch_size": 3, "lr": -1e-3, "amp": True, "note": "-x", "where": "a=b", "none": ""}),
    ],
    ids=" ".join,
)  # fmt: skip
def test_numbers_behind_the_dashes_are_numbers_in_the_cells(folder, words, given):
    told = parameters("train.ipynb", arguments=words)
    assert told == given
    assert {key: type(value) for key, value in told.items()} == {
        key: type(value) for key, value in given.items()
    }


@pytest.mark.parametrize("words", [["--epochs=3", "4"], ["3"], ["--a=1", "--a=2"], ["--=3"]])
def test_words_behind_the_dashes_that_assign_nothing_are_refused(folder, words):
    with pytest.raises(LaunchError) as error:
        parameters("train.ipynb", arguments=words)
    expected = "`args` of the notebook `train.ipynb` are words, and a notebook has parameters"
    assert error.value.message == expected


def test_numbers_of_a_job_file_are_numbers_in_the_cells_and_quoted_ones_text(folder):
    (folder / "job.yaml").write_text(
        "name: x\nimage: pytorch\nscript: train.ipynb\n"
        "args: {lr: 5e-4, version: '1.10', rates: [1e-3, '3', 0.50], ids: 0x10, none: null}\n"
    )
    expected = {"lr": 5e-4, "version": "1.10", "rates": [1e-3, "3", 0.5], "ids": 16, "none": None}
    assert parameters("job.yaml") == expected
    overrides = ["args.lr=1e-3", "args.rates=['7', 2e-3]", 'args.ids="0x10"', "args.none=false"]
    assert parameters("job.yaml", overrides) == {
        "lr": 1e-3,
        "version": "1.10",
        "rates": ["7", 2e-3],
        "ids": "0x10",
        "none": False,
    }


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--epochs", 3), "`args` of the notebook `n.ipynb` are words, and a notebook has parameters"),
        ({"a.b": 1}, "`args.a.b` of the notebook `n.ipynb` is not the name of a variable"),
        ({"x\nimport os": 1}, "`args.x\nimport os` of the notebook `n.ipynb` is not the name of a variable"),
        ({"class": 1}, "`args.class` of the notebook `n.ipynb` is not the name of a variable"),
    ],
)  # fmt: skip
def test_arguments_that_are_no_assignments_are_refused(args, message):
    with pytest.raises(LaunchError) as error:
        notebook_command("n.ipynb", args)
    assert error.value.message == message


def test_the_python_of_the_cells_is_read_without_what_is_ipythons_own():
    text = code_of(
        cells(
            ["%matplotlib inline\n", "import torch\n", "if 1:\n", "    !ls"],
            "%%bash\nimport nothing",
            "x = 7 % 3\n?x",
        ),
        "n.ipynb",
    ).decode()
    assert "import a" not in text
    assert "import nothing" not in text
    names = [type(each).__name__ for each in ast.parse(text).body]
    assert names == ["Pass", "Import", "If", "Assign", "Pass"]


IPYTHONS = [
    "gpu = !nvidia-smi\nimport found",
    "!pip install \\\n  -q \\\n  nbclient\nimport found",
    "%config InlineBackend.figure_format = \\\n  'retina'\nimport found",
    "import found\nfound.nn?",
    "import found\nfound.nn.Linear??",
    "?print\nimport found",
    "home = %env HOME\na, b = !ls\nx[0].y = !ls -l | wc\nimport found",
    "if True:\n    !ls\n    import found",
    "%matplotlib inline\n!ls\ntext = ('%d' '%d'\n        % (3, 4))\nimport found",
    "%matplotlib inline\nassert (3\n  != 4)\nimport found",
    "%matplotlib inline\nn = 7 \\\n%x\nimport found",
    "  %matplotlib inline\n  import found",
    "# is it there?\nif True:\n    # what is it?\n    !ls\nimport found",
    'print("""\n!ls\n""")\n!ls\nimport found',
]


@pytest.mark.parametrize("cell", IPYTHONS)
def test_a_cell_is_read_as_ipython_reads_it(cell):
    from IPython.core.inputtransformer2 import TransformerManager

    text = code_of(cells(cell), "n.ipynb").decode()
    assert imports(text) == ["found"]
    assert imports(TransformerManager().transform_cell(cell)) == ["found"]


def imports(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Import)]
    return [alias.name for each in nodes for alias in each.names]


def test_a_cell_that_is_python_stays_as_it_is():
    cell = 'x = (\n"%s"\n% (3,)\n)\ny = """\n!ls\n%cd\nreally?\n"""'
    assert code_of(cells(cell), "n.ipynb").decode() == cell


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("%%time\nimport found", ["found"]),
        ("\n%%capture out --no-stderr\n%%timeit -n 1\n!ls\nimport found", ["found"]),
        ("%%prun -q\nimport found", ["found"]),
        ("%%time", []),
        ("%%bash\nimport found", []),
        ("%%time\n%%writefile train.py\nimport found", []),
        ("print 'Python 2'\nimport found", []),
        ("import found\nx = (", []),
        ("import found\n\0", []),
        ("import found\nx = '\\d'", ["found"]),
        ("x = " + "-" * 100_000 + "1", []),
    ],
    ids=lambda each: each[:30] if isinstance(each, str) else "",
)
def test_a_cell_of_another_language_is_left_out_and_the_others_are_read(cell, found):
    text = code_of(cells("import before", cell, "import behind"), "n.ipynb").decode()
    assert imports(text) == ["before", *found, "behind"]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"cells": 3}', b'{"cells": [3]}', b'{"cells": [{"cell_type": "code"}]}',
     b'{"cells": [{"cell_type": "code", "source": [3]}]}', b"\xff\xfe", b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_notebook_is_refused(content):
    with pytest.raises(LaunchError) as error:
        code_of(content, "n.ipynb")
    assert error.value.message == "`n.ipynb` is not a notebook of Jupyter's format 4"


@pytest.mark.parametrize(
    ("path", "told"), [("a.ipynb", True), ("A.IPYNB", True), ("a.py", False), (None, False)]
)
def test_a_notebook_is_told_by_its_name(path, told):
    assert is_notebook(path) is told
