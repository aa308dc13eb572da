"""Finds names in a Python source that Keras 2 has and Keras 3 lacks (pure)."""

from __future__ import annotations

import ast

_KEYWORDS = frozenset({"experimental_run_tf_function"})
_ATTRIBUTES = frozenset({"reset_states"})
# The last two words of a dotted name.
_MODULES = frozenset({("optimizers", "legacy"), ("tf", "estimator"), ("tensorflow", "estimator")})


def keras2_names(source: str) -> list[tuple[int, str]]:
    """List the lines and names that need Keras 2; raises SyntaxError for what is no Python."""
    found: set[tuple[int, str]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg in _KEYWORDS:
            found.add((node.lineno, node.arg))
        elif isinstance(node, ast.Attribute):
            owner = _last_word(node.value)
            if node.attr in _ATTRIBUTES:
                found.add((node.lineno, node.attr))
            elif (owner, node.attr) in _MODULES:
                found.add((node.lineno, f"{owner}.{node.attr}"))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # Keras 3 has an optimizer's variables as a property.
            owner = _last_word(node.func.value)
            if node.func.attr == "variables" and "opt" in owner.lower():
                found.add((node.lineno, f"{owner}.variables()"))
    return sorted(found)


def _last_word(value: ast.expr) -> str:
    if isinstance(value, ast.Attribute):
        return value.attr
    return value.id if isinstance(value, ast.Name) else ""
