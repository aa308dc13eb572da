"""Knows the options of `az batchai`: which there were, and where each stands in the JSON that it fills.

Names are those of the Azure CLI's own batchai module, of its newest version and of the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.launching.imports.shell_script import Word

CLUSTER, JOB, FILE_SERVER = ("cluster", "create"), ("job", "create"), ("file-server", "create")
NAME, CONFIG, LOCATION = "--name", "--config-file", "--location"
ACCOUNT, ACCOUNT_KEY = "--storage-account-name", "--storage-account-key"
SHARE, SHARE_PATH = "--afs-name", "--afs-mount-path"
CONTAINER, CONTAINER_PATH = "--bfs-name", "--bfs-mount-path"
NFS, NFS_PATH = "--nfs", "--nfs-mount-path"
TARGET, LEAST, MOST = "--target", "--min", "--max"
AUTO_STORAGE, GENERATE_KEYS, IMAGE = "--use-auto-storage", "--generate-ssh-keys", "--image"
JOB_CLUSTER, EXPERIMENT = "--cluster", "--experiment"
FLAGS = (
    *(AUTO_STORAGE, GENERATE_KEYS, "--no-wait", "--yes", "--help", "--debug", "--verbose"),
    "--only-show-errors",
)
# Where an option's value stands below `properties`.
PATHS: Mapping[tuple[str, ...], Mapping[str, tuple[str, ...]]] = {
    CLUSTER: {
        "--vm-size": ("vmSize",),
        "--vm-priority": ("vmPriority",),
        "--setup-task": ("nodeSetup", "setupTask", "commandLine"),
        "--setup-task-output": ("nodeSetup", "setupTask", "stdOutErrPathPrefix"),
        "--subnet": ("subnet", "id"),
        "--custom-image": (
            *("virtualMachineConfiguration", "imageReference", "virtualMachineImageId"),
        ),
        IMAGE: ("virtualMachineConfiguration", "imageReference", "offer"),
    },
    JOB: {JOB_CLUSTER: ("cluster", "id"), EXPERIMENT: ("experimentName",)},
    FILE_SERVER: {
        "--vm-size": ("vmSize",),
        "--disk-count": ("dataDisks", "diskCount"),
        "--disk-size": ("dataDisks", "diskSizeInGB"),
        "--caching-type": ("dataDisks", "cachingType"),
        "--storage-sku": ("dataDisks", "storageAccountType"),
        "--subnet": ("subnet", "id"),
    },
}
_COMMON = {
    "-n": NAME,
    "-g": "--resource-group",
    "-w": "--workspace",
    "-l": LOCATION,
    "-o": "--output",
    "-y": "--yes",
    "-h": "--help",
}
_MOUNTS = (ACCOUNT, ACCOUNT_KEY, SHARE, SHARE_PATH, CONTAINER, CONTAINER_PATH, NFS, NFS_PATH)
_ACCOUNTS = ("--user-name", "--ssh-key", "--password", GENERATE_KEYS)
_LONG: Mapping[tuple[str, ...], tuple[str, ...]] = {
    CLUSTER: (*PATHS[CLUSTER], *_MOUNTS, *_ACCOUNTS, TARGET, LEAST, MOST, AUTO_STORAGE),
    JOB: (*PATHS[JOB], *_MOUNTS),
    FILE_SERVER: (*PATHS[FILE_SERVER], *_ACCOUNTS),
}
_ACCOUNT_SHORT = {"-u": "--user-name", "-k": "--ssh-key", "-p": "--password", "-s": "--vm-size"}
_SHORT: Mapping[tuple[str, ...], Mapping[str, str]] = {
    CLUSTER: {
        **_ACCOUNT_SHORT,
        "-f": CONFIG,
        "-c": CONFIG,
        "-i": IMAGE,
        "-t": TARGET,
        "--config": CONFIG,
        "--container-name": CONTAINER,
        "--container-mount-path": CONTAINER_PATH,
    },
    JOB: {
        "-f": CONFIG,
        "-c": JOB_CLUSTER,
        "-r": JOB_CLUSTER,
        "-e": EXPERIMENT,
        "--config": CONFIG,
        "--cluster-name": JOB_CLUSTER,
    },
    FILE_SERVER: {
        **_ACCOUNT_SHORT,
        "-f": CONFIG,
        "-c": CONFIG,
        "--config": CONFIG,
        "--admin-user-name": "--user-name",
    },
}
_EVERYWHERE = (NAME, CONFIG, LOCATION, *FLAGS)
_STACK = "a stack has a resource group and a workspace of its own: `-s STACK` chooses it"
_OF_CLI = "it was for the Azure CLI alone: `launch` has --json and --debug of its own"
_WAIT = "`launch run` follows a run; Ctrl-C leaves it"
# Options that stand for nothing in a job or a cluster, with what takes their place.
REASONS: Mapping[str, str] = {
    **dict.fromkeys(("--resource-group", "--workspace", "--cluster-resource-group"), _STACK),
    **dict.fromkeys(("--nfs-resource-group", "--nfs-workspace", "--subscription"), _STACK),
    **dict.fromkeys(("--output", "--query", "--debug", "--verbose", "--help", "--yes"), _OF_CLI),
    "--only-show-errors": _OF_CLI,
    "--no-wait": _WAIT,
    GENERATE_KEYS: "nodes have no accounts and no ssh: `launch logs` shows ranks",
}
_GONE = "Batch AI is gone, and the command acts on what it had"
# What takes the place of commands that make no job, cluster or file server.
INSTEAD: Mapping[tuple[str, ...], str] = {
    ("workspace", "create"): "a stack has a workspace of its own, which `pulumi up` makes",
    ("cluster", "resize"): "set `min_nodes` and `max_nodes` of the cluster in Pulumi.<stack>.yaml",
    (
        "cluster",
        "auto-scale",
    ): "set `min_nodes` and `max_nodes` of the cluster in Pulumi.<stack>.yaml",
    ("cluster", "delete"): "remove the cluster from Pulumi.<stack>.yaml, then `pulumi up`",
    ("cluster", "list"): f"{_GONE}: `launch cluster ls` shows yours",
    ("cluster", "show"): f"{_GONE}: `launch cluster ls` shows yours",
    ("job", "delete"): f"{_GONE}: `launch rm RUN`",
    ("job", "terminate"): f"{_GONE}: `launch cancel RUN`",
    ("job", "list"): f"{_GONE}: `launch ls` shows runs",
    ("job", "show"): f"{_GONE}: `launch show RUN`",
    ("job", "wait"): f"{_GONE}: `launch wait RUN`",
    ("job", "file"): f"{_GONE}: `launch logs RUN`, `launch fetch RUN`",
    ("job", "stream-file"): f"{_GONE}: `launch logs RUN`",
}


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option as it was typed (`spelled`), its name in the newest Azure CLI, and its value, if it has one.

    A word that belongs to no option has no name.
    """

    spelled: str
    name: str
    value: Word | None
    where: Word


def instead_of(command: tuple[str, ...]) -> str:
    """Say what takes the place of a command."""
    return INSTEAD.get(command[:2], f"{_GONE}: `launch --help` lists what there is now")


def split_words(words: list[Word]) -> tuple[tuple[str, ...], list[Option]]:
    """Split a command line into the command's own words and its options."""
    command: list[str] = []
    while len(command) < len(words) and not words[len(command)].is_option and len(command) < 3:
        command.append(words[len(command)].text)
    if tuple(command[:2]) in PATHS:
        command = command[:2]
    kind, rest = tuple(command), words[len(command) :]
    is_first = _is_first_version(kind, rest)
    options: list[Option] = []
    at = 0
    while at < len(rest):
        word = rest[at]
        at += 1
        if not word.is_option:
            options.append(Option(spelled="(a word of its own)", name="", value=word, where=word))
            continue
        spelled, equals, text = word.text.partition("=")
        if not equals and not spelled.startswith("--") and len(spelled) > 2:
            spelled, equals, text = spelled[:2], "=", spelled[2:]
        name = CONFIG if is_first and spelled == "-c" else full_name(kind, spelled)
        value: Word | None = None
        if equals:
            value = Word(
                text=text,
                where=word.where,
                line=word.line,
                is_unknown=word.is_unknown,
                is_quoted=True,
            )
        elif name not in FLAGS and at < len(rest) and not rest[at].is_option:
            value, at = rest[at], at + 1
        options.append(Option(spelled=spelled, name=name, value=value, where=word))
    return kind, options


def _is_first_version(kind: tuple[str, ...], words: list[Word]) -> bool:
    """Tell whether `-c` names a job's file, as it did before workspaces; later it named the cluster."""
    spelled = {each.text.partition("=")[0] for each in words if each.is_option}
    if kind != JOB or spelled & {"-f", CONFIG, "-e", EXPERIMENT, "-w", "--workspace", "--config"}:
        return False
    values = [after.text for word, after in itertools.pairwise(words) if word.text == "-c"]
    return bool(spelled & {"-r", "--cluster-name"}) or any(
        each.endswith(".json") for each in values
    )


def full_name(kind: tuple[str, ...], spelled: str) -> str:
    """Give an option's long name; the Azure CLI took the beginning of one, too."""
    if kind == ("workspace", "create") and spelled == "-n":
        return NAME
    short = {**_COMMON, **_SHORT.get(kind, {})}
    known = {*_LONG.get(kind, ()), *_EVERYWHERE, *REASONS}
    if spelled in short or spelled in known:
        return short.get(spelled, spelled)
    aliases = [each for each in short if each.startswith("--")]
    found = {
        short.get(each, each)
        for each in (*known, *aliases)
        if spelled.startswith("--") and each.startswith(spelled)
    }
    return found.pop() if len(found) == 1 else spelled
