"""A plan as people read it (pure)."""

from __future__ import annotations

import shlex

from jobs.console import duration_text, fields, size_text
from jobs.cost import price_text
from jobs.resolve import size_text as job_size_text
from jobs.spec import Environment, InputSpec, JobSpec, Plan


def plan_text(plan: Plan, environment: Environment) -> str:
    """What will be started, where, with what, for how much; names and values in two columns."""
    spec = plan.spec
    cluster = environment.clusters[spec.cluster]
    pairs = [
        ("job", spec.name),
        ("cluster", f"{spec.cluster} of stack {spec.stack} ({cluster.size})"),
        ("size", job_size_text(spec.nodes, spec.processes_per_node)),
        ("servers", _servers_text(spec)),
        ("image", spec.image),
        ("launcher", spec.launcher),
        ("command", shlex.join(spec.command)),
        ("code", _code_text(spec)),
        *[(_label("input", n), _input_text(name, spec.inputs[name])) for n, name in _each(spec)],
        ("outputs", ", ".join(spec.outputs)),
        ("resumes", f"{spec.resume.run} at step {spec.resume.step}" if spec.resume else ""),
        ("setup", "; ".join(spec.setup)),
        ("env", ", ".join(f"{name}={value}" for name, value in spec.env.items())),
        ("secrets", ", ".join(spec.secrets)),
        ("limits", _limits_text(spec)),
        (
            "retry",
            f"{spec.retry.max}, after {' or '.join(spec.retry.on)}" if spec.retry.max else "",
        ),
        ("priority", spec.priority if spec.priority != "normal" else ""),
        ("price", price_text(spec, cluster)),
        *[("note", note) for note in plan.notes],
    ]
    return fields([pair for pair in pairs if pair[1]])


def _servers_text(spec: JobSpec) -> str:
    if not spec.parameter_servers:
        return ""
    told = f"{spec.parameter_servers} for parameters"
    return f"{told}; rank 0 is the chief, the other ranks serve" if spec.chief else told


def _each(spec: JobSpec) -> list[tuple[int, str]]:
    return list(enumerate(spec.inputs))


def _label(name: str, position: int) -> str:
    return f"{name}s" if position == 0 else ""


def _input_text(name: str, given: InputSpec) -> str:
    dataset = given.dataset
    size = f"{dataset.files} files, {size_text(dataset.bytes)}"
    return f"{name} = {dataset.name}@{dataset.version} ({size}, {given.mode})"


def _code_text(spec: JobSpec) -> str:
    if spec.code is None:
        return "none"
    only = f" (only {', '.join(spec.code_only)})" if spec.code_only else ""
    return f"{spec.code}{only}"


def _limits_text(spec: JobSpec) -> str:
    hang = f"hang {duration_text(spec.limits.hang_s)}"
    if spec.limits.wall_clock_s is None:
        return hang
    return f"{duration_text(spec.limits.wall_clock_s)} in all, {hang}"
