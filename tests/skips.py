"""Which skips CI allows: each with why it may be, and what stays unproved where it is.

What only set-up could not fetch or build is no skip but a failure: `tests/needs.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# 1 in CI, where a skip must be of those below.
VARIABLE = "TRAINYARD_CI"
# The whole `-m` of `make faults`.
CAMPAIGNS = "faults and not images"


@dataclass(frozen=True, kw_only=True)
class Skip:
    """A reason that a test gives in whole, as a pattern."""

    reason: str
    why: str
    proves: str


# The line of the program that met the kernel, and in it the kernel's words, at its end: a failure by
# our fault is no reason to skip, whatever was refused before it. util-linux points to dmesg behind it.
REFUSED = (
    r"(?i:(?:operation )?not permitted|permission denied|(?:operation )?not supported"
    r"|function not implemented|no such device|read-only file system|unknown filesystem type .*)"
)
ENDS = r"\.?(?:\n *dmesg\(1\) [^\n]*)?"
KERNEL = (
    # It tells the same of several calls, and then that it lets go.
    rf"strace may not trace here: strace: [^\n]*PTRACE_[A-Z]+[^\n]*: {REFUSED}(?:\nstrace: [^\n]*)*",
    r"no memory control group to be had here: \[Errno \d+\] "
    rf"(?:{REFUSED}|(?i:no such file or directory)): '/sys/fs/cgroup/[^']*'",
    rf"no network namespaces here: (?:unshare: [^\n]*|RTNETLINK answers): {REFUSED}",
    rf"no tmpfs can be mounted here: mount: [^\n]*: {REFUSED}{ENDS}",
    rf"buildah cannot keep images here: (?:[^\n]*\n)*Error: [^\n]*(?:mount|overlay|userns|chown)[^\n]*: {REFUSED}{ENDS}",
    rf"podman runs no container here: (?:[^\n]*\n)*(?:Error: )?[^\n]*(?:crun|runc|conmon|mount|overlay|unshare|cgroup)"
    rf"[^\n]*: {REFUSED}(?:: OCI [a-z ]+)?{ENDS}",
)
ALLOWED = (
    Skip(
        reason=r"no (GPU|accelerator)\b.*",
        why="most machines have none, and no test may ask for one",
        proves="that GPUs are found, shared out and computed on as the stand-ins say",
    ),
    Skip(
        reason=r"no (Azure )?account\b.*",
        why="an account costs money, and `make prove-azure` asks the real Azure",
        proves="that Azure answers as the stand-in does",
    ),
    Skip(
        reason=r"(only root (may|can)|needs root,) .*|a (small file system|memory control group) needs root"
        r"|(buildah|podman)'s .* (is|are) tried as root only\b.*",
        why="only root may become another user, mount a file system or limit memory",
        proves="that another user gets at nothing, and that a full disk or memory loses nothing",
    ),
    Skip(
        reason=r"root may read every folder",
        why="nothing is closed to root",
        proves="that a folder which cannot be read is named",
    ),
    Skip(
        reason=r"(modes and links are of POSIX|not a Debian machine)",
        why="the machine's system lacks what is looked at",
        proves="that modes, links and Debian's packages are listed as they are",
    ),
    Skip(
        reason=r"image `\S+` cannot be installed with Python 3\.\d+: .*",
        why="its framework has no wheel for the Python of this environment",
        proves="that ranks of this image run; on Python 3.11 all images are tried",
    ),
    Skip(
        reason="|".join(KERNEL),
        why="the kernel, or the sandbox the tests run in, forbids it to root too",
        proves="that nodes of their own, real containers, full disks and traced calls do as their "
        "stand-ins",
    ),
    Skip(
        reason=r"Go is not on PATH",
        why="set-up asks Go only where the index has no official Pulumi",
        proves="that Go leaves no telemetry behind and keeps its settings",
    ),
    Skip(
        reason=r"this machine gives connections ports from \d+ on: there is no room below",
        why="a setting of the kernel's",
        proves="that ports of tests are below those of connections",
    ),
)


def find_allowed(reason: str) -> Skip | None:
    """Find the row that allows a reason; none where CI fails."""
    return next((each for each in ALLOWED if re.fullmatch(each.reason, reason, re.DOTALL)), None)
