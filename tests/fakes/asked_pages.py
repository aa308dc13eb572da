"""Asks pages of `launch ui` as its server does, of stacks that answer as a test says; reads what they show."""

from __future__ import annotations

from html.parser import HTMLParser

from starlette.requests import Request

from jobs.ui.curves import Curves
from jobs.ui.doing import Doings
from jobs.ui.pages import Pages
from jobs.ui.reading import Late, Reading

CLUSTER = {
    "compute": "cpu-1",
    "size": "local",
    "gpus_per_node": 0,
    "cpus_per_node": 4,
    "processes_per_node": 2,
    "min_nodes": 0,
    "max_nodes": 3,
    "price_per_node_hour": 2.5,
    "currency": "USD",
}


def asked(query: str = "", raw_path: bytes = b"", **params: str) -> Request:
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    return Request(
        {**scope, "query_string": query.encode(), "path_params": params, "raw_path": raw_path}
    )


class Stacks(Reading):
    """A project with stacks that are up or not; each answers a verb by what the test says."""

    def __init__(self, up, **answers):
        super().__init__(None, Late(patience_s=5))
        self.up, self.answers, self.heard = up, answers, []

    def once(self):
        return self

    def stacks(self):
        return [{"stack": name, "up": up} for name, up in self.up.items()]

    def ask(self, place, *words, of=()):
        self.heard.append([place, *words, *of])
        answer = self.answers.get(place, {}).get(words[0], [])
        if isinstance(answer, Exception):
            raise answer
        return answer


def run(name, **more):
    return {
        "id": f"20260102-030405-{name:0>4}",
        "name": name,
        "state": "completed",
        "cluster": "cpu",
        "cost": None,
        "progress": None,
        "nodes": 1,
        "world_size": 2,
        "created": "2026-01-02T03:04:05.000006Z",
        "started": None,
        "ended": None,
        "reason": None,
        **more,
    }


class Cells(HTMLParser):
    """The texts of a page's cells, a list a row."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.is_within = [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.is_within = True
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.is_within = False

    def handle_data(self, data):
        if self.is_within:
            self.rows[-1][-1] += data.strip()


def text_of(answer) -> str:
    return answer.body.decode()


def rows_of(answer) -> list[list[str]]:
    return Cells(text_of(answer)).rows


def pages_of(stacks: Reading) -> Pages:
    return Pages(stacks, Curves(), Doings())
