"""Finds names in a script that only Keras 2 has, or only Keras 3, and says which image has them (pure)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

# Version of Keras -> the image that has it.
IMAGE_OF_KERAS = {2: "tensorflow-keras2", 3: "tensorflow"}
_PLACES_2 = (
    "keras.backend.set_session",
    "keras.layers.experimental",
    "keras.optimizers.legacy",
    "keras.utils.np_utils",
    "keras.wrappers",
    "tensorflow.estimator",
)
_PLACES_3 = ("keras.config", "keras.distribution", "keras.ops", "keras.random")
_METHODS_2 = ("evaluate_generator", "fit_generator", "predict_generator", "reset_states")
_OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD")


class KerasName(NamedTuple):
    """A name that only one Keras has, and where it stands."""

    file: str
    line: int
    name: str


def other_keras_note(
    image: str, script: str, found: Mapping[int, Sequence[KerasName]]
) -> str | None:
    """Write what a plan says of a script that the other TensorFlow image is made for.

    `found` are the names of each Keras, the script's own first.
    """
    if image not in IMAGE_OF_KERAS.values():
        return None
    version, other = next(each for each in IMAGE_OF_KERAS.items() if each[1] != image)
    names = found.get(version, ())
    if not names:
        return None
    file, line, name = names[0]
    place = f"line {line}" if file == script else f"{file}, line {line}"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"{script} uses names of Keras {version} that `{image}` lacks ({place}: {name}{more}); "
        f"hint: image: {other}"
    )


def keras2_names(source: str) -> list[tuple[int, str]]:
    """List line and name of what Keras 3 has no more; nothing for what is no Python."""
    tree = _parse(source)
    if tree is None:
        return []
    found = set(_places(tree, _PLACES_2))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.update((node.lineno, name) for name in _calls(node))
        elif isinstance(node, ast.Attribute) and node.attr == "lr" and _is_optimizer(node):
            found.add((node.lineno, "optimizer.lr"))
    return sorted(found)


def keras3_names(source: str) -> list[tuple[int, str]]:
    """List line and name of what Keras 2 has not yet; nothing for what is no Python."""
    tree = _parse(source)
    return sorted(set(_places(tree, _PLACES_3))) if tree is not None else []


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _calls(node: ast.Call) -> Iterator[str]:
    arguments = {each.arg for each in node.keywords}
    if "experimental_run_tf_function" in arguments:
        yield "experimental_run_tf_function"
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called in _OPTIMIZERS and "lr" in arguments:
        yield f"{called}(lr=...)"
    if called in _METHODS_2:
        yield f"{called}()"
    is_bare = not node.args and not node.keywords
    if called == "variables" and is_bare and _is_optimizer(node.func):
        yield "optimizer.variables()"


def _is_optimizer(node: ast.expr) -> bool:
    """Tell whether the attribute is one of something that is called `opt` or `optimizer`."""
    owner = node.value if isinstance(node, ast.Attribute) else node
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return re.search(r"(^|_)opt(im(izer)?)?(_|\Z)", name) is not None


def _places(tree: ast.Module, places: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Find modules by their full names, however the script imports and calls them."""
    known: dict[str, str] = {}
    imports = [each for each in ast.walk(tree) if isinstance(each, (ast.Import, ast.ImportFrom))]
    for node in imports:
        for alias, name in _imported(node):
            known[alias] = name
            yield from ((node.lineno, place) for place in places if _lies_in(name, place))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := _full_name(node, known)) in places:
            yield node.lineno, name


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for each in node.names:
            name = each.name if each.asname else each.name.partition(".")[0]
            yield each.asname or name, _plain(each.name if each.asname else name)
    elif node.module and not node.level:
        for each in node.names:
            yield each.asname or each.name, _plain(f"{node.module}.{each.name}")


def _full_name(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return _plain(f"{_full_name(node.value, known)}.{node.attr}")
    return known.get(node.id, "") if isinstance(node, ast.Name) else ""


def _plain(name: str) -> str:
    return name.removeprefix("tensorflow.") if name.startswith("tensorflow.keras") else name


def _lies_in(name: str, place: str) -> bool:
    return f"{name}.".startswith(f"{place}.")
