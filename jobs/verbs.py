"""The verbs of `launch` with one line each, and the help of the whole made of them.

No command framework is needed for either: loading it costs more than all the rest of `launch --help`.
"""

from __future__ import annotations

# In the order of the help. A verb's module is `jobs.commands.VERB`; its line is the first
# sentence of its own help.
VERBS = {
    "run": "Run a job and follow its ranks' logs.",
    "plan": "Show what `launch run` would start.",
    "ls": "List runs, newest first.",
    "show": "Show all that is known of a run.",
    "logs": "Print the log lines of all ranks, merged by time.",
    "wait": "Wait for the end of a run.",
    "cancel": "End runs.",
    "fetch": "Bring a run's outputs and logs home.",
    "rerun": "Run a recorded run once more.",
    "diff": "Show what parts two runs.",
    "report": "Show the figures of runs; draw their curves.",
    "data": "Prepare, push, list and pull datasets.",
    "env": "Look at environments; hand one on; mend one.",
    "image": "Realise images on this machine; list them.",
    "schema": "Print the JSON Schema of a job file.",
    "doctor": "Say what this machine lacks.",
}

SUMMARY = "Run distributed training jobs on an environment made by `pulumi up`."
OPTIONS = {
    "--version": "Print the version.",
    "--debug": "Show the traceback of an error; may stand anywhere.",
    "--install-completion": "Teach the shell to complete what is typed.",
    "--show-completion": "Print what that would add to the shell's start.",
    "-h, --help": "Show this, or after a verb the verb's own help.",
}


def overview() -> str:
    """The help of the whole."""
    lines = ["Usage: launch [OPTIONS] VERB ...", "", f"  {SUMMARY}", "", "Verbs:"]
    lines += _two_columns(VERBS)
    lines += ["", "Options:", *_two_columns(OPTIONS)]
    lines += ["", "  launch run digits          the demo's job", "  launch VERB --help"]
    return "\n".join(lines)


def _two_columns(texts: dict[str, str]) -> list[str]:
    width = max(map(len, texts))
    return [f"  {name.ljust(width)}  {text}" for name, text in texts.items()]
