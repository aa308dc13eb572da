"""Checks the placeholders of a job file before anything starts; jobs/rank/placeholders.py fills them."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import JobFile
from jobs.jobfile.yaml_tree import Node, brief
from jobs.rank.placeholders import PLACEHOLDER, RANK_WORDS, RUN_WORDS

# The keys whose texts are filled on the node.
FILLED = ("args", "command", "env", "setup")


def check_placeholders(job: JobFile, root: Node) -> None:
    """Raise LaunchError for the first placeholder that no node could fill."""
    named = [f"inputs.{name}" for name in job.inputs] + [f"outputs.{name}" for name in job.outputs]
    entries = root.value if isinstance(root.value, dict) else {}
    for key in FILLED:
        known = [*named, *RUN_WORDS] if key == "setup" else [*named, *RUN_WORDS, *RANK_WORDS]
        for node in _texts(entries[key].node) if key in entries else ():
            for found in PLACEHOLDER.finditer(node.text or ""):
                if not found["escape"] and found["name"] not in known:
                    raise _unknown(node.where, key, found["name"], known)


def _texts(node: Node) -> Iterator[Node]:
    if isinstance(node.value, dict):
        for entry in node.value.values():
            yield from _texts(entry.node)
    elif isinstance(node.value, list):
        for item in node.value:
            yield from _texts(item)
    elif isinstance(node.value, str):
        yield node


def _unknown(where: str, key: str, name: str, known: list[str]) -> LaunchError:
    shown = brief(name)
    if key == "setup" and name in RANK_WORDS:
        message = f"{where}: `setup` runs once on each node, so `${{{shown}}}` has no value there"
        return LaunchError(message, hint="use it in `args`, `env` or `command`")
    if name.startswith("secret"):
        message = f"{where}: `${{{shown}}}`: a secret is not a placeholder, it would show in `ps`"
        return LaunchError(message, hint="`secrets: {TOKEN: its-name}`; read the variable TOKEN")
    kind, _, rest = name.partition(".")
    message = f"{where}: the placeholder `${{{shown}}}` is unknown"
    if kind in ("inputs", "outputs") and not any(each.startswith(f"{kind}.") for each in known):
        what = f"{kind}: {{{brief(rest) or 'NAME'}: ...}}"
        return LaunchError(message, hint=f"the job has no `{kind}`: add `{what}`")
    near = get_close_matches(brief(name), known, n=1)
    told = ", ".join(f"`${{{each}}}`" for each in known)
    hint = f"did you mean `${{{near[0]}}}`?" if near else f"known are {told}"
    return LaunchError(message, hint=f"{hint} (`$${{` writes `${{` itself)")
