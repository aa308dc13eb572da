"""Reads `az batchai` command lines: each becomes the JSON that the Azure CLI would have sent, with its files merged.

Options are the leaves of the script. What the readers of the JSON tell of a value is told of the option, or of
the key of the file, that it came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from jobs.jobfile.yaml_tree import Entry, Node, plain_scalar
from jobs.launching.imports import batchai_options as names
from jobs.launching.imports.batchai_mounts import IDENTITY
from jobs.launching.imports.batchai_options import Option
from jobs.launching.imports.draft import Project
from jobs.launching.imports.leaves import Leaves, Merged, Place
from jobs.launching.imports.shell_script import ShellScript
from jobs.launching.imports.trees import entry_of, node_at, scalars, with_node

Config = Callable[[str, int], "Leaves | None"]
_ACCOUNT_VARIABLE = "AZURE_BATCHAI_STORAGE_ACCOUNT"
_IN_FILE = f"<{_ACCOUNT_VARIABLE}>"
_DEFAULT_PATHS = {"azureFileShares": "afs", "azureBlobFileSystems": "bfs", "fileServers": "nfs"}
_NO_CONFIG = "no file of that name is beside the script, or it is none of Batch AI: give it, too"
_ACCOUNTS = ("--user-name", "--ssh-key", "--password")
_NUMBERS = ("--disk-count", "--disk-size", names.TARGET, names.LEAST, names.MOST)


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that makes something: its kind, and the tree that a reader of JSON takes."""

    kind: tuple[str, ...]
    leaves: Merged


def script_leaves(
    script: ShellScript, file: str
) -> tuple[Leaves, list[tuple[tuple[str, ...], list[Option], list[Place]]]]:
    """Give a script's options as leaves, and each command with the places of its options."""
    split = [names.split_words(words) for words in script.commands]
    split = [each for each in split if any(option.name for option in each[1])]
    of_kind = Counter(" ".join(kind) for kind, _ in split)
    entries: dict[str, Entry] = {}
    numbers: Counter[str] = Counter()
    keys: list[list[str]] = []
    for kind, options in split:
        command = " ".join(kind)
        numbers[command] += 1
        number = f" ({numbers[command]})" if of_kind[command] > 1 else ""
        before = f"{command}{number} " if len(split) > 1 else ""
        mine: list[str] = []
        for option in options:
            key = _free(f"{before}{option.spelled}", entries)
            value = option.value.text if option.value else True
            node = Node(where=option.where.where, value=value)
            entries[key] = Entry(where=option.where.where, node=node)
            mine.append(key)
        keys.append(mine)
    leaves = Leaves(Node(where=f"{file}:1:1", value=entries), file)
    places = {each.key: each for each in leaves.top.members()}
    return leaves, [
        (kind, options, [places[key] for key in mine])
        for (kind, options), mine in zip(split, keys, strict=True)
    ]


def _free(key: str, taken: dict[str, Entry]) -> str:
    number = 2
    free = key
    while free in taken:
        free, number = f"{key} ({number})", number + 1
    return free


def read_commands(
    script: ShellScript, file: str, config: Config, project: Project
) -> tuple[Leaves, list[Command]]:
    """Read a script's commands; gives its leaves, and the commands whose trees readers of JSON take.

    `config` gives the leaves of a file that a command names on a line.
    """
    for name, value in script.variables.items():
        if value:
            project.vault.learn_from(name, value)
    leaves, found = script_leaves(script, file)
    commands: list[Command] = []
    for kind, options, places in found:
        for option, place in zip(options, places, strict=True):
            _learn(option, project)
            _tell_plain(option, place)
        if kind not in names.PATHS or any(each.name == "--help" for each in options):
            continue
        merged = _Maker(kind, options, places, script, project).make(leaves, config)
        body = merged.top.section("properties") or merged.top
        if kind == names.CLUSTER and body.get("vmSize") is None:
            merged.top.refuse_rest("a cluster without a size is none: give --vm-size")
        else:
            commands.append(Command(kind=kind, leaves=merged))
    _tell_others(found)
    return leaves, commands


def _learn(option: Option, project: Project) -> None:
    if option.value is None:
        return
    project.vault.learn_from(option.name, option.value.text)
    if option.name in ("--password", names.ACCOUNT_KEY):
        project.vault.learn(option.value.text)


def _tell_plain(option: Option, place: Place) -> None:
    """Tell of options whose fate no other decides."""
    value = option.value
    if option.name == names.ACCOUNT_KEY:
        place.refused(IDENTITY)
    elif reason := names.REASONS.get(option.name):
        place.refused(reason)
    elif option.name in _ACCOUNTS:
        place.refused(names.REASONS[names.GENERATE_KEYS])
    elif not option.name:
        place.refused("it belongs to no option: quote a value that has blanks")
    elif value is None and option.name not in names.FLAGS:
        place.refused("the option has no value: give one")
    elif value is not None and value.is_unknown:
        place.refused(
            f"its value is known only when line {value.line} runs: write the value itself"
        )
    elif value is not None and value.text.startswith("<") and value.text.endswith(">"):
        place.refused("the text of a template stands here: fill it in, and import it again")


def _tell_others(found: list[tuple[tuple[str, ...], list[Option], list[Place]]]) -> None:
    """Tell of the options of commands that make no job, cluster or file server."""
    named = {
        option.value.text
        for kind, options, _ in found
        if kind == names.JOB
        for option in options
        if option.name == names.EXPERIMENT and option.value
    }
    for kind, options, places in found:
        for option, place in zip(options, places, strict=True):
            if kind in names.PATHS:
                continue
            text = option.value.text if option.value else ""
            if kind == ("experiment", "create") and option.name == names.NAME and text in named:
                place.converted("experiment, of the jobs that name it")
            elif kind == ("experiment", "create"):
                place.refuse_rest(
                    "an experiment begins with its first run: set `experiment` of a job"
                )
            else:
                place.refuse_rest(names.instead_of(kind))


class _Maker:
    """Makes the JSON of one command out of its file and its options."""

    def __init__(
        self,
        kind: tuple[str, ...],
        options: list[Option],
        places: list[Place],
        script: ShellScript,
        project: Project,
    ) -> None:
        self._kind, self._script, self._project = kind, script, project
        self._given: dict[str, tuple[str, Place]] = {}
        for option, place in zip(options, places, strict=True):
            if place.is_told:
                continue
            if option.name in self._given:
                self._given[option.name][1].refused(
                    "the option is given again, and the last counts"
                )
            self._given[option.name] = (option.value.text if option.value else "", place)
        self._origins: dict[int, Place] = {}
        self._line = options[0].where.line if options else 1

    def make(self, leaves: Leaves, config: Config) -> Merged:
        """Merge the options into the file's tree."""
        root = self._file(config)
        is_wrapped = isinstance(root.value, dict) and (
            "properties" in root.value and isinstance(root.value["properties"].node.value, dict)
        )
        self._top: tuple[str, ...] = ("properties",) if is_wrapped else ()
        root = self._named(root)
        for name, path in names.PATHS[self._kind].items():
            if name in self._given:
                root = self._put(root, (*self._top, *path), self._node(name))
        if self._kind == names.CLUSTER:
            root = self._scale(root)
        if self._kind != names.FILE_SERVER:
            root = self._mounts(root)
        return Merged(root, leaves.file, self._origins)

    def _file(self, config: Config) -> Node:
        empty = Node(where=self._where(), value={})
        if names.CONFIG not in self._given:
            return empty
        text, place = self._given[names.CONFIG]
        found = config(text, self._line)
        if found is None or not isinstance(found.top.value, dict):
            place.refused(_NO_CONFIG)
            return empty
        place.converted("the file is merged with the options")
        for leaf in found.top.leaves():
            self._origins[id(leaf.node)] = leaf
        return found.top.node

    def _where(self) -> str:
        return next((place.where for _, place in self._given.values()), "")

    def _named(self, root: Node) -> Node:
        """Put the name and the location beside `properties`."""
        for name, key in ((names.NAME, "name"), (names.LOCATION, "location")):
            if name in self._given:
                root = self._put(root, (key,), self._node(name))
        return root

    def _node(self, name: str, text: str | None = None) -> Node:
        """Make the value of an option, whose fate is the option's."""
        given, place = self._given[name]
        value = plain_scalar(given) if name in _NUMBERS and text is None else text or given
        node = Node(where=place.where, value=value)
        self._origins[id(node)] = place
        return node

    def _put(self, root: Node, path: tuple[str, ...], value: Node) -> Node:
        """Set a value in a copy of the tree, and tell of the key of the file that it replaces."""
        if not path:
            for leaf in scalars(root):
                if origin := self._origins.get(id(leaf)):
                    origin.converted("an option of the command line takes its place")
            return value
        entries = dict(root.value) if isinstance(root.value, dict) else {}
        key, rest = path[0], path[1:]
        old = entries.get(key)
        below = old.node if old else Node(where=value.where, value={})
        if old and rest and not isinstance(below.value, dict):
            if below.value is not None:
                Place(Leaves(below, ""), below, key).fail("an object")
            below = Node(where=below.where, value={})
        entries[key] = Entry(where=value.where, node=self._put(below, rest, value))
        return Node(where=root.where, value=entries)

    def _scale(self, root: Node) -> Node:
        """Put the numbers of nodes: with a least or a most one the cluster scales by itself."""
        automatic = (*self._top, "scaleSettings", "autoScale")
        manual = (*self._top, "scaleSettings", "manual")
        scales = names.LEAST in self._given or names.MOST in self._given
        pairs = (
            (names.LEAST, (*automatic, "minimumNodeCount")),
            (names.MOST, (*automatic, "maximumNodeCount")),
            (
                names.TARGET,
                (*automatic, "initialNodeCount") if scales else (*manual, "targetNodeCount"),
            ),
        )
        for name, path in pairs:
            if name in self._given:
                root = self._put(root, path, self._node(name))
        return root

    def _mounts(self, root: Node) -> Node:
        before = () if self._kind == names.JOB else ("nodeSetup",)
        volumes = (*self._top, *before, "mountVolumes")
        account = self._account()
        root = self._with_account(root, account)
        share = self._given.get(names.SHARE)
        if share:
            url = f"https://{account or '<account>'}.file.core.windows.net/{share[0]}"
            facts = {"azureFileUrl": self._node(names.SHARE, url), **self._account_fact()}
            root = self._mount(root, volumes, "azureFileShares", facts, names.SHARE_PATH)
        if names.CONTAINER in self._given:
            facts = {"containerName": self._node(names.CONTAINER), **self._account_fact()}
            root = self._mount(root, volumes, "azureBlobFileSystems", facts, names.CONTAINER_PATH)
        if names.NFS in self._given:
            server = Node(where=self._where(), value={"id": entry_of(self._node(names.NFS))})
            root = self._mount(root, volumes, "fileServers", {"fileServer": server}, names.NFS_PATH)
        if names.AUTO_STORAGE in self._given:
            root = self._automatic(root, volumes)
        self._tell_rest()
        return root

    def _account(self) -> str:
        if names.ACCOUNT in self._given:
            return self._given[names.ACCOUNT][0]
        return self._script.variables.get(_ACCOUNT_VARIABLE) or ""

    def _account_fact(self) -> dict[str, Node]:
        return {"accountName": self._node(names.ACCOUNT)} if names.ACCOUNT in self._given else {}

    def _mount(
        self, root: Node, volumes: tuple[str, ...], kind: str, facts: dict[str, Node], path: str
    ) -> Node:
        default = Node(where=self._where(), value=_DEFAULT_PATHS[kind])
        entries = {key: entry_of(node) for key, node in facts.items()}
        entries["relativeMountPath"] = entry_of(
            self._node(path) if path in self._given else default
        )
        return self._append(root, (*volumes, kind), Node(where=self._where(), value=entries))

    def _automatic(self, root: Node, volumes: tuple[str, ...]) -> Node:
        """Put the share and the container that `--use-auto-storage` made."""
        option = names.AUTO_STORAGE
        url = "https://<account>.file.core.windows.net/batchaishare"
        share = {
            "azureFileUrl": self._node(option, url),
            "relativeMountPath": self._node(option, "autoafs"),
        }
        blobs = {
            "containerName": self._node(option, "batchaicontainer"),
            "relativeMountPath": self._node(option, "autobfs"),
        }
        for kind, facts in (("azureFileShares", share), ("azureBlobFileSystems", blobs)):
            value = {key: entry_of(node) for key, node in facts.items()}
            item = Node(where=self._where(), value=value)
            root = self._append(root, (*volumes, kind), item)
        return root

    def _append(self, root: Node, path: tuple[str, ...], item: Node) -> Node:
        old = node_at(root, path)
        items = old.value if old is not None and isinstance(old.value, list) else []
        if old is not None and old.value is not None and not isinstance(old.value, list):
            Place(Leaves(old, ""), old, path[-1]).fail("a list")
        value = Node(where=item.where, value=[*items, item])
        return with_node(root, path, value)

    def _with_account(self, root: Node, account: str) -> Node:
        """Fill the account's name into the file, where a template has its place."""
        if not account:
            return root
        filled = self._fill(root, account)
        if names.ACCOUNT in self._given and any(
            isinstance(leaf.value, str) and account in leaf.value for leaf in scalars(filled)
        ):
            self._given[names.ACCOUNT][1].converted("README.md: the account of the mounts")
        return filled

    def _fill(self, node: Node, account: str) -> Node:
        value = node.value
        if isinstance(value, dict):
            entries = {
                key: Entry(where=each.where, node=self._fill(each.node, account))
                for key, each in value.items()
            }
            return Node(where=node.where, value=entries)
        if isinstance(value, list):
            return Node(where=node.where, value=[self._fill(each, account) for each in value])
        if not isinstance(value, str) or _IN_FILE not in value:
            return node
        filled = Node(where=node.where, value=value.replace(_IN_FILE, account))
        if origin := self._origins.get(id(node)):
            self._origins[id(filled)] = origin
        return filled

    def _tell_rest(self) -> None:
        """Tell of options that only go with another one."""
        alone = "no share, container or server is mounted with it: give its name, too"
        pairs = (
            (names.SHARE_PATH, names.SHARE),
            (names.CONTAINER_PATH, names.CONTAINER),
            (names.NFS_PATH, names.NFS),
        )
        for path, name in pairs:
            if path in self._given and name not in self._given:
                self._given[path][1].refused(alone)
        account = self._given.get(names.ACCOUNT)
        if account and not {names.SHARE, names.CONTAINER} & self._given.keys():
            account[1].refuse_rest("no mount names this account: push the data, as README.md says")
