"""What a script uses is read from its text: image and launcher follow, nothing is executed."""

import pytest

from jobs.contracts.errors import LaunchError
from jobs.jobfile.read import load_job
from jobs.jobfile.script import KINDS, read_script
from jobs.jobfile.written import write_job
from jobs.jobfile.yaml_tree import parse_yaml

HVD_TORCH = ("Horovod for torch", "pytorch", "horovod")
HVD_KERAS = ("Horovod for Keras", "tensorflow", "horovod")
HVD_TF = ("Horovod for TensorFlow", "tensorflow", "horovod")
TF_WORKERS = ("tf.distribute", "tensorflow", "tensorflow")
DDP = ("torch.distributed", "pytorch", "torch")
TORCH = ("torch", "pytorch", "none")
DDP_TEXT = "from torch.distributed import init_process_group"
HF = ("the Trainer of transformers", "pytorch", "torch")
NOTHING = ("no known framework", "pytorch", "none")

SCRIPTS = {
    "import horovod.torch as hvd": HVD_TORCH,
    "from horovod import torch as hvd": HVD_TORCH,
    "def main():\n    import horovod.torch as hvd": HVD_TORCH,
    "import tensorflow as tf\nimport horovod.tensorflow.keras as hvd": HVD_KERAS,
    "import horovod.keras as hvd": HVD_KERAS,
    "import horovod.tensorflow as hvd": HVD_TF,
    "import tensorflow as tf\ns = tf.distribute.MultiWorkerMirroredStrategy()": TF_WORKERS,
    "import tensorflow, os\nos.environ['TF_CONFIG']": TF_WORKERS,
    "import tensorflow as tf\ntf.distribute.MirroredStrategy()": (
        "TensorFlow",
        "tensorflow",
        "none",
    ),
    "import torch\ntorch.distributed.init_process_group('gloo')": DDP,
    "import torch.distributed as dist\ndist.init_process_group()": DDP,
    "from torch import distributed as dist\ndist.init_process_group()": DDP,
    "from torch.distributed import init_process_group": DDP,
    "from torch.distributed.fsdp import fully_shard": DDP,
    "import torch, torch.distributed as dist\ndist.is_initialized()": TORCH,
    "from torch.nn.parallel import DistributedDataParallel as DDP": DDP,
    "from torch.nn.parallel import DataParallel": TORCH,
    "import torch\ntorch.nn.DataParallel(1)": TORCH,
    "from accelerate import Accelerator": ("Accelerate", "pytorch", "torch"),
    "import lightning as L": ("Lightning", "pytorch", "torch"),
    "import pytorch_lightning as pl": ("Lightning", "pytorch", "torch"),
    "import deepspeed": ("DeepSpeed", "pytorch", "torch"),
    "from transformers import Trainer": HF,
    "import transformers\ntransformers.Seq2SeqTrainer()": HF,
    "from transformers import Seq2SeqTrainingArguments": HF,
    "from transformers.trainer_seq2seq import Seq2SeqTrainer": HF,
    "from transformers.training_args_seq2seq import Seq2SeqTrainingArguments": HF,
    "from transformers.training_args import TrainingArguments": HF,
    "from transformers.trainer_utils import get_last_checkpoint, set_seed": HF,
    "from transformers.trainer_utils import set_seed\nimport torch": TORCH,
    "from trl import SFTTrainer, SFTConfig": ("TRL", "pytorch", "torch"),
    "import trl\ntrl.GRPOTrainer()": ("TRL", "pytorch", "torch"),
    "from transformers import AutoModel\nimport torch": TORCH,
    "from mpi4py import MPI": ("mpi4py", "pytorch", "mpi"),
    "import torch": TORCH,
    "from tensorflow import keras": ("TensorFlow", "tensorflow", "none"),
    "import keras": ("Keras", "tensorflow", "none"),
    "print('import torch')": NOTHING,
    "torch = 1\ntorch.distributed": NOTHING,
    "import torchmetrics_of_mine": NOTHING,
    "": NOTHING,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reading(folder, text, **others):
    for name, content in others.items():
        file = folder / f"{name.replace('__in__', '/')}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    path = folder / "train.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_script(path, "train.py")


def found(read):
    return read.kind.uses, read.image, read.kind.launcher


@pytest.mark.parametrize("text", SCRIPTS)
def test_image_and_launcher_follow_from_the_imports(folder, text):
    assert found(reading(folder, text)) == SCRIPTS[text]


def test_every_kind_has_a_script_here(folder):
    kinds = {(kind.uses, kind.image, kind.launcher) for kind in KINDS}
    servers = ("tf.distribute with parameter servers", "tensorflow", "tensorflow")
    assert kinds - {servers} <= set(SCRIPTS.values())


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("import model", {"model": DDP_TEXT}),
        ("from model import net", {"model": DDP_TEXT}),
        ("from pack.model import net", {"pack__in____init__": "", "pack__in__model": DDP_TEXT}),
        ("from pack import model", {"pack__in____init__": "", "pack__in__model": DDP_TEXT}),
        ("import pack", {"pack__in____init__": "from . import model", "pack__in__model": DDP_TEXT}),
        ("import pack", {"pack__in____init__": "from .model import f", "pack__in__model": "from other import g", "other": DDP_TEXT}),
        ("import a", {"a": "import b", "b": f"import a\n{DDP_TEXT}"}),
    ],
)  # fmt: skip
def test_imports_are_followed_into_files_beside_the_script(folder, text, files):
    assert found(reading(folder, text, **files)) == DDP


def test_a_file_beside_the_script_hides_a_framework_of_its_name(folder):
    assert found(reading(folder, "import accelerate, torch", accelerate="x = 1")) == TORCH


def test_files_outside_of_the_folder_and_files_that_are_no_python_are_left_aside(folder):
    inside = folder / "inside"
    inside.mkdir()
    (folder / "outer.py").write_text(DDP_TEXT)
    (inside / "linked.py").symlink_to(folder / "outer.py")
    (inside / "broken.py").write_text("def (")
    text = "import torch, broken, linked\nfrom ..outer import x\nfrom .....etc import y"
    assert found(reading(inside, text)) == TORCH


def test_a_script_that_starts_its_own_processes_gets_one(folder):
    text = f"import torch.multiprocessing as mp\n{DDP_TEXT}\nmp.spawn(main, nprocs=4)\n"
    assert found(reading(folder, text)) == ("processes that it starts itself", "pytorch", "none")
    by_rank = text + "import os\nrank = os.environ['LOCAL_RANK']\n"
    assert found(reading(folder, by_rank)) == DDP


def test_names_of_keras_2_ask_for_its_image(folder):
    text = "import tensorflow as tf, horovod.tensorflow.keras as hvd\n"
    text += "m.compile(optimizer=o, experimental_run_tf_function=False)\n"
    read = reading(folder, text)
    assert found(read) == ("Horovod for Keras", "tensorflow-keras2", "horovod")
    assert read.sentences == (
        "train.py uses Horovod for Keras and `experimental_run_tf_function`, which Keras 2 has and "
        "Keras 3 lacks: image tensorflow-keras2, launcher horovod, one process per GPU",
    )


def test_what_was_decided_is_said_with_the_way_to_change_it(folder):
    assert reading(folder, DDP_TEXT).sentences == (
        "train.py uses torch.distributed: image pytorch, launcher torch, one process per GPU",
    )
    both = reading(folder, f"{DDP_TEXT}\nimport horovod.torch")
    assert both.sentences == (
        "train.py uses Horovod for torch: image pytorch, launcher horovod, one process per GPU",
        "it also uses torch.distributed; for that: --set image=pytorch --set launcher=torch",
    )
    assert reading(folder, "import torch.distributed").sentences == (
        "train.py uses torch: image pytorch, launcher none, one process",
        "it also uses torch.distributed, but forms no process group; if that is wrong: "
        "--set launcher=torch --processes-per-node gpu",
    )
    assert reading(folder, "import os").sentences == (
        "train.py uses no known framework: image pytorch, launcher none, one process",
        "if that is wrong: --set image=... --set launcher=...",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = (\n", "train.py:1: the script is not valid Python: '(' was never closed"),
        (b"\x7fELF\0\0\1", "train.py: the script is not valid Python: a binary file"),
        (b"x = '\xff'", "train.py: the script is not valid Python: invalid or missing encoding declaration"),
        (b"# coding: klingon\n", "train.py: the script is not valid Python: unknown encoding: klingon"),
        (b"x = " + b"-" * 100_000 + b"1", "train.py: the script is not valid Python: nested too deeply"),
        (b"#" * ((1 << 20) + 1), "the script `train.py` has more than 1 MB"),
    ],
    ids=["syntax", "binary", "letters", "encoding", "deep", "large"],
)  # fmt: skip
def test_what_is_no_script_is_refused(folder, content, message):
    with pytest.raises(LaunchError) as caught:
        reading(folder, content)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_an_encoding_that_the_script_names_is_used(folder):
    text = "# -*- coding: latin-1 -*-\nimport torch  # \xfc".encode("latin-1")
    assert found(reading(folder, text)) == TORCH


def test_a_script_is_read_and_not_run(folder, capsys):
    reading(folder, "import os\nopen('ran', 'w')\nprint('ran')\nraise SystemExit('\\d')")
    assert ([each.name for each in folder.iterdir()], capsys.readouterr()) == (
        ["train.py"],
        ("", ""),
    )


ARGUMENTS = [
    (),
    ("--epochs", "3"),
    ("--amp",),
    ("--lr", "0.10", "--amp", "--sizes", "8", "016", "--note=-x"),
    ("--flag", "true", "--none", "null", "--empty", ""),
    ("--text", "a: b # c", "--quote", 'it\'s "so"', "--umlaut", "ü"),
    ("3", "1"),
    ("-v", "--n", "4"),
    ("--n", "-4", "--lr", "-1e-3", "--at", "-0", "--most", ".inf"),
    ("--a=b", "--", "c"),
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_the_arguments_reach_the_script_as_they_were_typed(folder, arguments):
    from jobs.jobfile.resolve import command_of

    (folder / "train.py").write_text("import torch")
    loaded = load_job("train.py", arguments=arguments)
    assert command_of(loaded.job, loaded.code) == ("python", "train.py", *arguments)


def test_the_whole_job_file(folder):
    (folder / "1 my träin.py").write_text("import tensorflow as tf\ntf.distribute.coordinator")
    written = write_job(folder / "1 my träin.py", "x", ["--epochs", "3"])
    assert (
        written.text
        == """\
name: 1-my-tr-in            # in `launch ls`
image: tensorflow           # the script uses tf.distribute with parameter servers
launcher: tensorflow        # horovod, torch, tensorflow, mpi or none
script: "1 my träin.py"
code: .                     # this folder travels, except files in .gitignore
args:
  epochs: 3
processes_per_node: gpu     # one per GPU; without GPUs, the cluster's own number
parameter_servers: 1
chief: true
outputs: {model: {}}        # a folder: TRAINYARD_OUTPUT_MODEL
"""
    )
    assert parse_yaml(written.text, "x").value


def test_set_and_the_options_hold_for_a_script(folder):
    (folder / "train.py").write_text(DDP_TEXT)
    loaded = load_job(
        "train.py", ["args.lr=0.1", "inputs.digits.dataset=digits"], {"processes_per_node": "4"}
    )
    job = loaded.job
    assert (job.name, job.args, job.processes_per_node) == ("train", {"lr": 0.1}, 4)
    assert (job.inputs["digits"].dataset, loaded.folder) == ("digits", folder)


def test_requirements_beside_the_script_are_the_jobs(folder):
    (folder / "train.py").write_text(DDP_TEXT)
    (folder / "requirements.txt").write_text("tabulate\n")
    loaded = load_job("train.py")
    assert (loaded.job.requirements, loaded.code.requirements) == (("requirements.txt",) * 2)
    assert loaded.sentences == (
        "train.py uses torch.distributed: image pytorch, launcher torch, one process per GPU",
        "requirements.txt: installed over the image; else --set requirements=null",
    )
    assert load_job("train.py", ["requirements=null"]).job.requirements is None
    (folder / "jobs").mkdir()
    written = write_job(folder / "train.py", "train.py", folder=folder / "jobs")
    assert "requirements: ../requirements.txt # over the image\n" in written.text


@pytest.mark.parametrize("home", ["", "linked"])
def test_a_script_in_the_home_folder_does_not_take_the_home_along(folder, monkeypatch, home):
    (folder / "linked").symlink_to(folder)
    (folder / "train.py").write_text("import torch")
    monkeypatch.setenv("HOME", str(folder / home))
    for into in (None, folder / "jobs"):  # `launch init --into` writes the job elsewhere
        with pytest.raises(LaunchError) as caught:
            write_job(folder / "train.py", "train.py", folder=into)
        assert (caught.value.message, caught.value.hint) == (
            f"train.py: without `code:` all files of `{folder}` would be copied",
            "move the script into a folder of its own",
        )
    with pytest.raises(LaunchError, match="all files of"):
        load_job("train.py")
    inside = folder / "inside"
    inside.mkdir()
    (inside / "train.py").write_text("import torch")
    assert load_job("inside/train.py").code.folder == str(inside)


def test_arguments_behind_a_job_file_are_refused(folder):
    with pytest.raises(LaunchError, match="unexpected argument: -x; `digits` is not a script"):
        load_job("digits", arguments=["-x"])


def test_a_script_that_is_not_there_is_named_with_its_neighbour(folder):
    (folder / "train.py").write_text("")
    with pytest.raises(LaunchError) as caught:
        load_job("trian.py")
    assert (caught.value.message, caught.value.hint) == (
        "the script `trian.py` does not exist",
        "did you mean `train.py`?",
    )
