"""Hold that no modules of jobs import each other in a circle, inside of functions and for types included."""

from __future__ import annotations

import grimp


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Find the strongly connected components of several modules (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_ones: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        open_ones.append(module)
        for other in imports[module]:
            if other not in order:
                visit(other)
            if other in open_ones:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == order[module]:
            start = open_ones.index(module)
            members = open_ones[start:]
            del open_ones[start:]
            if len(members) > 1:
                found.append(sorted(members))

    for module in imports:
        if module not in order:
            visit(module)
    return found


def test_a_circle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str]()}
    assert circles(imports) == [["b", "c"]]


def test_no_modules_of_jobs_import_each_other() -> None:
    graph = grimp.build_graph("jobs", cache_dir=None)
    imports = {
        module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)
    }
    assert circles(imports) == []
