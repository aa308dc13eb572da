"""Writes `.venv/bin/pulumi`, and the record of the local stack that `pulumi up` wants to find."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from jobs.host.cache import run_logged
from jobs.host.project import NAME
from jobs.host.trust import trust
from tools.phases import Phases
from tools.project import Project

WRAPPER = """\
#!/bin/sh
# Written by `make setup`: Pulumi with this clone's home and, for the local stack, its own state.
repo={repo}
export PATH="$repo/.venv/bin:"{pulumi}":$PATH" PULUMI_HOME="$repo/.trainyard/pulumi-home"
export PULUMI_SKIP_UPDATE_CHECK=true
stack=${{PULUMI_OPTION_STACK:-${{PULUMI_STACK:-${{PULUMI_BACKEND_URL:+?}}}}}} before= named= may_deploy=
for word in "$@"; do
    case "$before" in
    -s | --stack | -[defhjryQ]s | -[defhjryQ][defhjryQ]s) stack=$word before= && continue ;;
    esac
    case "$word" in
    --stack=* | -s=* | -[defhjryQ]s=* | -[defhjryQ][defhjryQ]s=*) stack=${{word#*=}} ;;
    -s?* | -[defhjryQ]s?* | -[defhjryQ][defhjryQ]s?*) stack=${{word#*s}} ;;
    up | update | watch) may_deploy=yes ;;
    esac
    case "$before $word" in
    "stack init" | "stack select" | "stack rm") named=yes ;;
    " log"[io]* | "-"*" log"[io]*) stack=? ;;
    *" -"* | *://*) ;;
    *) [ -z "$named" ] || stack=$word ;;
    esac
    before=$word
done
if [ "${{stack:-local}}" = local ]; then
    (umask 077 && mkdir -p "$repo/.trainyard/state")
    export PULUMI_BACKEND_URL="file://$repo/.trainyard/state"
    export PULUMI_CONFIG_PASSPHRASE="${{PULUMI_CONFIG_PASSPHRASE-}}"
    # The cloud stacks' SDK is installed too: without this, every command fetches its provider first.
    export PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION=true
fi
if [ -n "$may_deploy" ] && [ "$stack" != local ]; then
    python -P -m tools.gate "$repo" "$stack" "$@" >&2 || exit
fi
exec {program} "$@"
"""


def write_wrapper(project: Project, pulumi: Path) -> Path:
    """Write the wrapper; dev, test and prod keep the caller's PULUMI_BACKEND_URL or login.

    The `launch` of any clone may start it: this clone is listed as trusted.
    """
    text = WRAPPER.format(
        repo=shlex.quote(str(project.root)),
        pulumi=shlex.quote(str(pulumi)),
        program=shlex.quote(str(pulumi / "pulumi")),
    )
    wrapper = project.venv / "bin" / "pulumi"
    if not wrapper.exists() or wrapper.read_text(encoding="utf-8") != text:
        partial = wrapper.with_name("pulumi.partial")
        partial.write_text(text, encoding="utf-8")
        partial.chmod(0o755)
        partial.replace(wrapper)
    trust(project.root)
    return wrapper


def ensure_local_stack(project: Project, wrapper: Path, phases: Phases) -> None:
    """Make the empty stack `local`, so that `pulumi up -s local` works in a fresh clone."""
    record = project.state / "state" / ".pulumi" / "stacks" / NAME / "local.json"
    if record.exists():
        return
    with phases.phase("Pulumi stack `local` recorded"):
        run_logged(
            [wrapper, "stack", "init", "local", "--non-interactive"],
            what="pulumi stack init local",
            log=project.log("pulumi-stack"),
            env={**os.environ, "PULUMI_STACK": "local"},
            cwd=project.root,
        )
