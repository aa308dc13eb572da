"""Kills `pulumi up` of an Azure stack by -9 at random moments, and mends each by one repair and one `up`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time

from tests import seeds
from tests.busy import HANG_S, Bound
from tests.fakes.azure_native import HANG, HANG_AFTER

# Azure takes its time, so that moments fall into creates, updates and deletes and not between.
LATENCY_S = 0.3
# Nothing more came for so long: the request without an answer holds up the rest.
STILL_S = 2.0
UNANSWERED = ("*:Vault", "*:Workspace", "*:Compute", "*:RoleAssignment", "*:BlobContainer")


def copy_pristine(project, into):
    """Keep what a project has before its first `up`; gives the folder."""
    for folder in ("azure", ".trainyard/state"):
        shutil.copytree(project.root / folder, into / "pristine" / folder)
    return into / "pristine"


def start_over(project, pristine):
    """Nothing is there, and nothing in the record: the next `up` creates all."""
    for folder in ("azure", ".trainyard/state"):
        shutil.rmtree(project.root / folder)
        shutil.copytree(pristine / folder, project.root / folder)


def change_clusters(project, pristine):
    """The next `up` replaces one cluster, creates one or takes it away, and updates the rest."""
    clusters = project.settings["clusters"]
    sizes = {"Standard_D4ds_v4": "Standard_D16ds_v4", "Standard_D16ds_v4": "Standard_D4ds_v4"}
    clusters["cpu"]["size"] = sizes[clusters["cpu"]["size"]]
    clusters["gpu"]["max_nodes"] = 5 - clusters["gpu"]["max_nodes"]
    if clusters.pop("more", None) is None:
        clusters["more"] = dict(clusters["cpu"])


def next_generation(project, pristine):
    """The next `up` replaces vault and workspace with all that is in them."""
    project.settings["generation"] = project.settings.get("generation", 1) + 1


# How many requests that change something each has about.
CHANGES = {start_over: 36, change_clusters: 3, next_generation: 30}


def num_writes(project):
    """Requests so far that were to change something, answered."""
    calls = project.azure / "calls.jsonl"
    if not calls.exists():
        return 0
    asked = [json.loads(line)["operation"] for line in calls.read_text().splitlines()]
    return sum(each in {"create", "update", "delete"} for each in asked)


def kill_up(project, after_writes, *, wait_s, whole_group):
    """Kill an `up`, with its plugins or not, a while after so many writes; False when it had ended."""
    before = num_writes(project)
    up = project.start_up()
    seen, still, bound = before, None, Bound(HANG_S)
    while up.poll() is None and seen - before < after_writes:
        bound.check(f"{seen - before} of {after_writes} writes")
        time.sleep(0.02)
        now = num_writes(project)
        if now != seen:
            seen, still = now, Bound(STILL_S)
        if still is not None and still.is_passed():
            break
    time.sleep(wait_s)
    if up.poll() is None:
        (os.killpg if whole_group else os.kill)(up.pid, signal.SIGKILL)
    return up.wait() == -signal.SIGKILL


def kill_and_mend(project, pristine, num_kills):
    """Kills at as many moments; how each was mended, and what was not."""
    moments = seeds.dice("kills of an Azure stack")
    mended: list[str] = []
    broken: list[str] = []
    while (number := len(mended) + len(broken)) < num_kills:
        change = list(CHANGES)[number % len(CHANGES)]
        change(project, pristine)
        # Every other time one request gets no answer: made or not, nobody knows.
        without = moments.choice((HANG, HANG_AFTER)) | {"type": moments.choice(UNANSWERED)}
        project.script(latency_s=LATENCY_S, failures=[without] if number % 2 else [])
        # The first one comes with the first of 36 writes: while the stack is locked for sure.
        after_writes = moments.randint(1, CHANGES[change]) if number else 1
        wait_s = moments.uniform(0, LATENCY_S)
        if not kill_up(project, after_writes, wait_s=wait_s, whole_group=number % 4 == 3):
            project.script()
            continue
        case = f"kill {number + 1}: {change.__name__} after {after_writes} writes"
        project.script()
        repaired = project.launch("env", "repair", "-s", "dev", check=False)
        said = project.up(check=False)
        line = f"{case}: {repaired.stdout.strip()} {repaired.stderr.strip()}"
        if repaired.returncode == 0 and is_whole(project) and project.plugins() == []:
            mended.append(line)
        else:
            broken.append(f"{line}\n{said}")
    return mended, broken


def is_whole(project):
    """Everything that is there is in the record, and nothing else."""
    return set(project.owned().values()) == project.live().keys()
