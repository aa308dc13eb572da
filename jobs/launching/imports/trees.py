"""Changes copies of trees of values, in which each leaf stays the node that it was."""

from __future__ import annotations

from jobs.jobfile.yaml_tree import Entry, Node


def entry_of(node: Node) -> Entry:
    """Give a value as that of a key."""
    return Entry(where=node.where, node=node)


def scalars(node: Node) -> list[Node]:
    """Give the scalars of a tree."""
    if isinstance(node.value, dict):
        return [leaf for each in node.value.values() for leaf in scalars(each.node)]
    if isinstance(node.value, list):
        return [leaf for each in node.value for leaf in scalars(each)]
    return [node]


def node_at(root: Node, path: tuple[str, ...]) -> Node | None:
    """Give the value at a path; None where there is none."""
    for key in path:
        entry = root.value.get(key) if isinstance(root.value, dict) else None
        if entry is None:
            return None
        root = entry.node
    return root


def with_node(root: Node, path: tuple[str, ...], value: Node) -> Node:
    """Set a value in a copy of a tree, with the mappings on the way."""
    if not path:
        return value
    entries = dict(root.value) if isinstance(root.value, dict) else {}
    old = entries.get(path[0])
    below = old.node if old else Node(where=value.where, value={})
    entries[path[0]] = Entry(where=value.where, node=with_node(below, path[1:], value))
    return Node(where=root.where, value=entries)
