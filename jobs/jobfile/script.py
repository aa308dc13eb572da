"""Reads which frameworks a Python script uses, and decides its image and launcher; executes nothing."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Launcher
from jobs.jobfile.keras_names import IMAGE_OF_KERAS, KerasName, keras2_names, keras3_names
from jobs.jobfile.notebook import code_of, is_notebook

MOST_BYTES = 1 << 20
# Notebooks hold what their cells have shown, with pictures.
MOST_NOTEBOOK_BYTES = 64 << 20
MOST_FILES = 200
# A longer chain of attributes names no framework.
_LONGEST_NAME = 8


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of program: the names that tell it, and what it runs on."""

    names: tuple[str, ...]
    uses: str
    image: str
    launcher: Launcher = "none"
    has_parameter_servers: bool = False


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Decision on a script: its kind, its image, and the sentences that tell the user why."""

    kind: Kind
    image: str
    sentences: tuple[str, ...]
    # By the version of Keras that has them.
    keras: Mapping[int, tuple[KerasName, ...]] = field(
        default_factory=dict[int, tuple[KerasName, ...]]
    )


_TF = "tensorflow.distribute"
_TORCH = "torch.distributed"
# The first kind whose name a script uses is taken.
KINDS = (
    Kind(names=("horovod.torch",), uses="Horovod for torch", image="pytorch", launcher="horovod"),
    Kind(
        names=("horovod.keras", "horovod.tensorflow.keras"),
        uses="Horovod for Keras",
        image="tensorflow",
        launcher="horovod",
    ),
    Kind(
        names=("horovod.tensorflow",),
        uses="Horovod for TensorFlow",
        image="tensorflow",
        launcher="horovod",
    ),
    Kind(
        names=(
            f"{_TF}.ParameterServerStrategy",
            f"{_TF}.experimental.ParameterServerStrategy",
            f"{_TF}.coordinator",
            f"{_TF}.experimental.coordinator",
        ),
        uses="tf.distribute with parameter servers",
        image="tensorflow",
        launcher="tensorflow",
        has_parameter_servers=True,
    ),
    Kind(
        names=(
            f"{_TF}.MultiWorkerMirroredStrategy",
            f"{_TF}.experimental.MultiWorkerMirroredStrategy",
            "TF_CONFIG",
        ),
        uses="tf.distribute",
        image="tensorflow",
        launcher="tensorflow",
    ),
    Kind(
        names=(
            f"{_TORCH}.init_process_group",
            f"{_TORCH}.device_mesh",
            f"{_TORCH}.fsdp",
            f"{_TORCH}.init_device_mesh",
            "torch.nn.parallel.DistributedDataParallel",
            "torch.nn.parallel.distributed",
        ),
        uses=_TORCH,
        image="pytorch",
        launcher="torch",
    ),
    Kind(names=("accelerate",), uses="Accelerate", image="pytorch", launcher="torch"),
    Kind(
        names=("lightning", "lightning_fabric", "pytorch_lightning"),
        uses="Lightning",
        image="pytorch",
        launcher="torch",
    ),
    Kind(names=("deepspeed",), uses="DeepSpeed", image="pytorch", launcher="torch"),
    Kind(
        names=(
            "transformers.Trainer",
            "transformers.TrainingArguments",
            "transformers.Seq2SeqTrainer",
            "transformers.Seq2SeqTrainingArguments",
            "transformers.trainer",
            "transformers.trainer_seq2seq",
            "transformers.training_args",
            "transformers.training_args_seq2seq",
            # Not all of this module: scripts with a loop of their own take `set_seed` from it.
            "transformers.trainer_utils.EvalPrediction",
            "transformers.trainer_utils.get_last_checkpoint",
        ),
        uses="the Trainer of transformers",
        image="pytorch",
        launcher="torch",
    ),
    Kind(names=("trl",), uses="TRL", image="pytorch", launcher="torch"),
    Kind(names=("mpi4py",), uses="mpi4py", image="pytorch", launcher="mpi"),
    Kind(names=("torch", "torchvision"), uses="torch", image="pytorch"),
    Kind(names=("tensorflow",), uses="TensorFlow", image="tensorflow"),
    Kind(names=("keras",), uses="Keras", image="tensorflow"),
)
UNKNOWN = Kind(names=(), uses="no known framework", image="pytorch")
# Such a script starts one process a GPU by itself, unless it reads its rank from the environment.
_SPAWNING = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_RANK_VARIABLES = frozenset({"RANK", "LOCAL_RANK"})
_VARIABLES = _RANK_VARIABLES | {"TF_CONFIG"}
_SPAWNED = Kind(names=(), uses="processes that it starts itself", image="pytorch")


def read_script(path: Path, name: str) -> Reading:
    """Read the script and the files beside it that it imports; decide what it runs on.

    `name` is the script in messages. Raises LaunchError for what is no Python text.
    """
    content = _content(path, name)
    script = _parse(code_of(content, name) if is_notebook(name) else content, name)
    local, others = _imported(path, script)
    sources = [script, *others]
    names = {each for source in sources for each in source.names}
    foreign = frozenset(each for each in names if each.partition(".")[0] not in local)
    keras = {
        version: tuple(each for source in sources for each in source.keras[version])
        for version in IMAGE_OF_KERAS
    }
    keras_2 = keras[2][0].name if keras[2] else None
    return replace(decide(foreign, name, keras_2=keras_2), keras=keras)


def decide(names: frozenset[str], script: str, *, keras_2: str | None = None) -> Reading:
    """Decide the kind of a script that uses these dotted names; `keras_2` is one that needs Keras 2."""
    kinds = [kind for kind in KINDS if any(_is_used(each, names) for each in kind.names)]
    kind = kinds[0] if kinds else UNKNOWN
    spawns = any(_is_used(each, names) for each in _SPAWNING) and not names & _RANK_VARIABLES
    if kind.uses == _TORCH and spawns:
        kind = _SPAWNED
    image, because = kind.image, ""
    if keras_2 is not None and image == IMAGE_OF_KERAS[3]:
        image, because = IMAGE_OF_KERAS[2], f" and `{keras_2}`, which Keras 2 has and Keras 3 lacks"
    launcher = "none" if is_notebook(script) else kind.launcher
    size = "one process" if launcher == "none" else "one process per GPU"
    sentences = [f"{script} uses {kind.uses}{because}: image {image}, launcher {launcher}, {size}"]
    others = [each for each in kinds if each.launcher not in {"none", kind.launcher}]
    if kind is UNKNOWN:
        sentences.append("if that is wrong: --set image=... --set launcher=...")
    elif is_notebook(script):
        pass  # it has one kernel, whatever else its cells use
    elif kind.uses == "torch" and _is_used(_TORCH, names):
        sentences.append(
            f"it also uses {_TORCH}, but forms no process group; if that is wrong: "
            "--set launcher=torch --processes-per-node gpu"
        )
    elif others and kind is not _SPAWNED:
        other = others[0]
        sentences.append(
            f"it also uses {other.uses}; for that: --set image={other.image} "
            f"--set launcher={other.launcher}"
        )
    return Reading(kind=kind, image=image, sentences=tuple(sentences))


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A parsed file: the dotted names that it uses, those that it imports, those of one Keras."""

    names: frozenset[str]
    imports: frozenset[str]
    keras: Mapping[int, tuple[KerasName, ...]]


def _content(path: Path, name: str) -> bytes:
    most_bytes = MOST_NOTEBOOK_BYTES if is_notebook(name) else MOST_BYTES
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        message = f"cannot read the script `{name}`: {error.strerror}"
        raise LaunchError(message, hint=f"ls -l {name}") from None
    if len(content) > most_bytes:
        message = f"the script `{name}` has more than {most_bytes >> 20} MB"
        raise LaunchError(message, hint="type the path of the Python file that starts the training")
    return content


def _parse(content: bytes, name: str) -> _Source:
    if b"\0" in content:
        raise _no_python(name, "a binary file")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of a script's escapes
            tree = ast.parse(text)
            keras = {
                version: tuple(KerasName(name, *each) for each in find(text))
                for version, find in ((2, keras2_names), (3, keras3_names))
            }
    except SyntaxError as error:
        place = f"{name}:{error.lineno}" if error.lineno else name
        raise _no_python(place, error.msg) from None
    except ValueError as error:
        raise _no_python(name, str(error)) from None
    except (RecursionError, MemoryError):
        raise _no_python(name, "nested too deeply") from None
    bound, imports = _bindings(tree)
    names = set(imports) | set(_attributes(tree, bound)) | set(_variables(tree))
    return _Source(names=frozenset(names), imports=imports, keras=keras)


def _no_python(place: str, reason: str) -> LaunchError:
    message = f"{place}: the script is not valid Python: {reason}"
    return LaunchError(message, hint="correct the syntax, or type the path of another file")


def _bindings(tree: ast.Module) -> tuple[dict[str, str], frozenset[str]]:
    """Map the names that imports bind to dotted names, and list all that is imported."""
    bound: dict[str, str] = {}
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imports.add(alias.name)
                top = alias.name.partition(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            dots, module = "." * node.level, node.module or ""
            for alias in node.names:
                full = f"{dots}{module}.{alias.name}" if module else f"{dots}{alias.name}"
                imports.add(full)
                bound[alias.asname or alias.name] = full
    return bound, frozenset(imports)


def _attributes(tree: ast.Module, bound: Mapping[str, str]) -> Iterator[str]:
    """Yield the dotted names that begin with something imported: `dist.init_process_group`."""
    for node in ast.walk(tree):
        chain: list[str] = []
        inner: ast.expr | ast.AST = node
        while isinstance(inner, ast.Attribute) and len(chain) < _LONGEST_NAME:
            chain.append(inner.attr)
            inner = inner.value
        if chain and isinstance(inner, ast.Name) and inner.id in bound:
            yield ".".join([bound[inner.id], *reversed(chain)])


def _variables(tree: ast.Module) -> Iterator[str]:
    """Yield the environment variables of a rank that the script mentions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in _VARIABLES:
            yield str(node.value)


def _imported(path: Path, script: _Source) -> tuple[frozenset[str], list[_Source]]:
    """Read the files beside the script that it imports, and those that they import.

    Gives the top-level names that lie beside the script, and what was read.
    """
    root = path.parent.resolve()
    waiting, seen, found = [(path.resolve(), script)], {path.resolve()}, list[_Source]()
    local: set[str] = set()
    while waiting and len(seen) < MOST_FILES:
        importer, source = waiting.pop()
        for name in sorted(source.imports):
            files = _files_of(name, importer.parent, root)
            if files and not name.startswith("."):
                local.add(name.partition(".")[0])
            for file in files:
                if file in seen:
                    continue
                seen.add(file)
                with suppress(LaunchError):  # such a file fails when it is imported, if ever
                    place = file.relative_to(root).as_posix()
                    other = _parse(_content(file, place), place)
                    found.append(other)
                    waiting.append((file, other))
    return frozenset(local), found


def _files_of(name: str, folder: Path, root: Path) -> list[Path]:
    """List the files below `root` that an import of this name runs."""
    parts = name.lstrip(".")
    level = len(name) - len(parts)
    place = [folder, *folder.parents][min(level, len(folder.parents)) - 1] if level else root
    files: list[Path] = []
    for part in parts.split("."):
        place /= part
        for file in (place.with_name(f"{part}.py"), place / "__init__.py"):
            with suppress(OSError):  # too long a name
                if file.is_file() and (real := file.resolve()).is_relative_to(root):
                    files.append(real)
    return files


def _is_used(wanted: str, names: frozenset[str]) -> bool:
    return any(name == wanted or name.startswith(f"{wanted}.") for name in names)
