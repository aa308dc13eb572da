"""Checks every link, anchor and path of the documents: `python -m tests.documents.links`.

The builder of the site follows links between the pages of docs/ alone. This program reads the
README, AGENTS and CONTRIBUTING as well, and holds what prose says of the tree: a path or a module
in backticks exists, a test that is named is there, and every page stands in the site's navigation.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

PROJECT = Path(__file__).resolve().parents[2]
SITE = "zensical.toml"
ISLANDS = ("infra", "jobs", "tests", "tools", "trainer")

FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?(?: +\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
HTML_TARGET = re.compile(r"""<(?:a|img)\s[^>]*?(?:href|src)=["']([^"']+)""")
PATH = re.compile(rf"(?:{'|'.join(ISLANDS)}|docs|images)/[\w./-]+")
MODULE = re.compile(rf"(?:{'|'.join(ISLANDS)})(?:\.\w+)+")
STARTED = re.compile(rf"-m ((?:{'|'.join(ISLANDS)})(?:\.\w+)+)")
NAMED_PAGE = re.compile(r"(?<![\w./-])docs/[\w./-]+\.md")
TEST = re.compile(r"test_\w+(?:\.py)?")
# `images/<name>`, `{cloud,local}`, `*.py`, `images/NAME`, `docs/adr/NNNN-title.md` stand for many,
# `images/mine` for the reader's own.
PLACEHOLDER = re.compile(r"[<>{}*]|(?<![A-Za-z])[A-Z]{4,}(?![A-Za-z.])|^images/mine\b")


@dataclass(frozen=True)
class Page:
    """One Markdown file: its prose without fenced blocks, and the blocks."""

    path: Path
    prose: str
    blocks: str

    @classmethod
    def read(cls, path: Path) -> Page:
        text = path.read_text(encoding="utf-8")
        blocks = "\n".join(match[0] for match in FENCE.finditer(text))
        return cls(path, FENCE.sub("", text), blocks)

    def anchors(self) -> set[str]:
        """Return the anchors of the headings, named as GitHub names them."""
        return {anchor_of(match[1]) for match in HEADING.finditer(self.prose)}


def main() -> int:
    """Print each problem of the documents; returns the exit code."""
    problems = [*check_pages(PROJECT), *check_navigation(PROJECT)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def pages_of(project: Path) -> list[Path]:
    """List the documents: those at the top, those of docs/, of the examples and the images."""
    patterns = ("*.md", "docs/**/*.md", "examples/**/*.md", "images/**/*.md")
    return sorted(path for pattern in patterns for path in project.glob(pattern))


def check_pages(project: Path) -> Iterator[str]:
    """Yield a line for each broken link, anchor, path, module and name of a test."""
    for path in pages_of(project):
        page = Page.read(path)
        name = path.relative_to(project)
        for problem in (*check_links(page, project), *check_code(page, project)):
            yield f"{name}: {problem}"


def check_links(page: Page, project: Path) -> Iterator[str]:
    docs = project / "docs"
    without_code = CODE.sub("", page.prose)
    for pattern in (LINK, HTML_TARGET):
        for match in pattern.finditer(without_code):
            parts = urlsplit(match[1])
            if parts.scheme or parts.netloc:
                continue
            target = page.path
            if parts.path:
                target = Path(page.path.parent, unquote(parts.path)).resolve()
            if not target.exists():
                yield f"no such file: {match[1]}"
            elif page.path.is_relative_to(docs) and not target.is_relative_to(docs):
                yield f"the site has nothing outside of docs/, name the path instead: {match[1]}"
            elif target.is_dir() and page.path.is_relative_to(docs):
                yield f"the site has no page for a folder: {match[1]}"
            elif parts.fragment and parts.fragment not in Page.read(target).anchors():
                yield f"no such heading: {match[1]}"


def check_code(page: Page, project: Path) -> Iterator[str]:
    for match in CODE.finditer(page.prose):
        code = match[1]
        if PLACEHOLDER.search(code):
            continue
        if PATH.fullmatch(code) and not (project / code).exists():
            yield f"no such path: {code}"
        if MODULE.fullmatch(code) and not is_module(code, project):
            yield f"no such module: {code}"
        if TEST.fullmatch(code) and not any(
            project.glob(f"tests/**/{code.removesuffix('.py')}.py")
        ):
            yield f"no such test: {code}"
    for match in NAMED_PAGE.finditer(CODE.sub("", page.prose)):
        if not (project / match[0]).exists():
            yield f"no such path: {match[0]}"
    for match in STARTED.finditer(page.prose + page.blocks):
        if not is_module(match[1], project):
            yield f"no such module: {match[1]}"


def is_module(name: str, project: Path) -> bool:
    """Tell whether a dotted name is a module, a package, or a name that a module defines."""
    path = project.joinpath(*name.split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    module = path.parent.with_suffix(".py")
    if not module.is_file():
        module = path.parent / "__init__.py"
    return module.is_file() and path.name in module.read_text(encoding="utf-8")


def check_navigation(project: Path) -> Iterator[str]:
    """Yield a line for each page that the site's navigation lacks, and each entry without a page."""
    settings = tomllib.loads((project / SITE).read_text(encoding="utf-8"))
    named = list(_leaves(settings["project"]["nav"]))
    docs = project / "docs"
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    yield from (f"{SITE}: `nav` has no page {name}" for name in sorted(there - set(named)))
    yield from (f"{SITE}: `nav` names {name} twice" for name in _twice(named))
    yield from (f"{SITE}: no such page: {name}" for name in sorted(set(named) - there))


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
        return
    for entry in nav.values() if isinstance(nav, dict) else nav:
        yield from _leaves(entry)


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def anchor_of(heading: str) -> str:
    """Turn a heading into its anchor: `## What a run costs` is `what-a-run-costs`."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())
