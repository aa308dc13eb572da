"""The trace of a command: arrows between rooms, through code of others."""

import sys

from tests.documents.trace import note


def module(name, **names):
    """A namespace whose functions count as those of the module `name`."""
    return {"__name__": name, **names}


def traced(text, namespace, arrows):
    exec(compile(text, "traced", "exec"), namespace)
    sys.setprofile(lambda frame, event, _: note(frame, arrows) if event == "call" else None)
    try:
        namespace["top"]()
    finally:
        sys.setprofile(None)


def test_calls_between_rooms_are_arrows_whoever_stands_in_between():
    below = module("jobs.host.files")
    exec("def write(): pass", below)
    between = module("json", inner=below["write"])
    exec("def dump(): inner()", between)
    arrows = {}
    traced(
        "def top(): same(); dump()\ndef same(): pass",
        module("jobs.runs.store", dump=between["dump"]),
        arrows,
    )
    assert arrows == {("runs", "host"): "top calls write"}
