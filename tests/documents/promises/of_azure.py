"""Promises about Azure: jobs there, stacks, clusters, prices."""

from __future__ import annotations

import re
from signal import SIGKILL
from uuid import UUID

from infra import bootstrap_state, skus
from infra.cloud import alerts, budget, monitoring, registry, settings, storage, values, vault
from infra.cloud.settings import CloudSettings, Stage
from infra.policy import pack
from infra.policy.conditions import seconds
from infra.policy.machine_learning import NODES_TOGETHER, RULES
from jobs.contracts.errors import ExitCode
from jobs.contracts.spec import JobLimits, Limits
from jobs.engines import frameworks
from jobs.engines.azure_ml import client, clusters, intents, names, node_job, retry, roles, status
from jobs.host.units import parse_iso_duration
from jobs.rank import main as rank_main
from jobs.rank import node, uploads
from jobs.runs import failure
from jobs.stacks import prices
from jobs.stacks.doctor import OLDEST_PYTHON
from tests.documents.promises.sentences import NoPromise, Promise, promise
from tests.documents.promises.units import (
    a,
    an,
    constant,
    cuda,
    default,
    gib,
    hours,
    least_python,
    lengths,
    lengths_of,
    mib,
    minutes,
    mode,
    percent,
    spelled,
    weeks,
    written_in,
)
from tests.fakes.forked_launch import CRASHES
from tools.prove_azure import __main__ as prove
from tools.prove_azure import report
from trainer.common import bandwidth

STAGES: tuple[Stage, ...] = ("dev", "test", "prod")
DATA = storage._LIFECYCLES
LOGS = monitoring._LIFECYCLES
HANG = default(JobLimits, "hang")
HANG_S = 1800.0
GRACE = frameworks.GRACE_S
SHUTDOWN = int(
    frameworks.stall_environment(Limits(wall_clock_s=None, hang_s=HANG_S))[
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
    ]
)
ROLE_WAIT_S = default(CloudSettings, "role_wait_s")
ROLE_MIN = minutes(roles.UNTIL_IN_FORCE.total_seconds())
NCCL = "trainer/pytorch/nccl_check.py"


def _floor(size: str) -> tuple[float, float]:
    floor = bandwidth.FLOORS[f"standard_{size.lower()}"]
    return floor.gb_per_s, gib(floor.num_bytes)


def _window(alert: str) -> float:
    return parse_iso_duration(alerts._ALERTS[alert].window) or 0


def _limit(alert: str, unit_s: float) -> tuple[float, float]:
    return alerts._ALERTS[alert].threshold, _window(alert) / unit_s


def _fewest_nodes() -> list[str]:
    """Give the fewest nodes of a cluster that the policy allows, by stage: in all the same."""
    says = next(each.says for each in RULES if each.name == "cluster-scales-to-zero")
    return re.findall(r"min-nodes: (\d+) \(", says) * len(STAGES)


def _cuda_of_images() -> str:
    """Give the CUDA that the images hold, where the message of a size that it left behind says it."""
    said = written_in("infra/skus.py", r"the images' CUDA (\d+) cannot use")
    assert said == (cuda("pytorch").partition(".")[0],)
    return said[0]


def _most(rule: str) -> list[float]:
    """Give the highest number that a rule of the policy allows, by stage, from what it says."""
    says = next(each.says for each in RULES if each.name == rule)
    found = re.findall(r"(?:to|at most) (\w+)(?:;|$)", says)
    return [seconds(each) or float(each) for each in found]


def _tags_left() -> tuple[int, int]:
    return settings._MAX_TAGS - len(settings._OUR_TAGS), settings._MAX_ZONE_TAGS - len(
        settings.TAGS
    )


def _state_digits() -> str:
    names = bootstrap_state.name_everything("name", "subscription")
    assert names.account.endswith(names.vault.rpartition("-")[2])
    return spelled(len(names.vault.rpartition("-")[2]))


def _num_sizes() -> int:
    """Count the sizes that the table knows, to a hundred."""
    return round(len(skus.read_sizes()), -2)


def _digits_shown() -> str:
    return spelled(len(report.scrub(str(UUID(int=0))).partition("-")[0]))


PROMISES: dict[str, tuple[Promise, ...]] = {
    "docs/azure-jobs.md": (
        promise("Azure's public price list once {} week", a(weeks(prices.FRESH_S))),
        promise("type the same command within {} hour", an(hours(intents.RESUME_S))),
        promise('with one of ours, `trainyard: "{}"`, by which', names.MARK[1]),
        promise("The image needs Python {} or newer", least_python(node_job._MAIN)),
        promise("(train.py:9) exit code {} ", failure.HANG_EXIT_CODE),
        promise("sends results to the store every {} s from", uploads.INTERVAL_S),
        promise("kept fresh in a file of mode {}.", mode("jobs/rank/uploads.py", "write_token")),
        promise("until all are sent ({} minutes at most)", minutes(uploads.PATIENCE_S)),
        promise("A further attempt is Azure ML's job `{}`, `RUN_3`", names.job_name("RUN", 2)),
        promise("type `wait` within {} hours", hours(retry.WITHIN_S)),
        promise("only while at least {} minute is left", a(minutes(retry.LEAST_S))),
        promise("write a checkpoint and exit with {}:", node.PREEMPTED_EXIT_CODE),
        promise("`limits.hang` ({} min unless the job says otherwise)", HANG.removesuffix("m")),
        promise("frameworks' own limits remain, {} minute later", a(minutes(GRACE))),
        promise("_SHUTDOWN_TIME_SECONDS` (`hang` and {} minutes)", minutes(SHUTDOWN - HANG_S)),
        promise(
            "all ranks, from {} bytes to {} GiB ({} MiB without GPUs;",
            *(
                bandwidth.message_sizes(64)[0],
                gib(bandwidth.GIB),
                mib(constant(NCCL, "MOST_ON_CPU")),
            ),
        ),
        promise("| ND96isr_H100_v5 | {} | {} GiB |", *_floor("nd96isr_h100_v5")),
        promise("| ND96isr_H200_v5 | {} | {} GiB |", *_floor("nd96isr_h200_v5")),
        promise(
            "| ND96asr_v4, ND96amsr_A100_v4 | {} | {} GiB, {} GiB |",
            *(*_floor("nd96asr_v4"), _floor("nd96amsr_a100_v4")[1]),
        ),
        promise("| NC96ads_A100_v4 | {} | {} GiB |", *_floor("nc96ads_a100_v4")),
        promise("each with up to {} others", spelled(bandwidth.MOST_ROUNDS)),
        promise("less than {} % of the median", percent(bandwidth.SLOW_SHARE)),
        promise("at once | every {} s, a file once", uploads.INTERVAL_S),
        promise("a file once it is at rest for {} s |", uploads.STILL_S),
        promise("crash points of a submit, {} in `make faults`", spelled(len(CRASHES))),
    ),
    "docs/azure-messages.md": (
        promise("it was tried again {} times", client._RETRIES),
        promise("trying again for {} min; the run goes on", minutes(status.PATIENCE_S)),
        promise(
            "Exit code {}, {}, {} or {}. Nothing is left behind",
            *map(int, (ExitCode.ENVIRONMENT, ExitCode.USAGE, ExitCode.REFUSED, ExitCode.NOT_FOUND)),
        ),
        promise("Exit code {}. |", int(ExitCode.FAILED)),
        promise(
            "{} is a kill, mostly memory; {}: no `python` in the image",
            *(128 + SIGKILL, rank_main.CANNOT_START),
        ),
    ),
    "docs/azure-state.md": (
        promise("It needs Python {} or newer", ".".join(map(str, OLDEST_PYTHON))),
        promise("begins every name; {} digits of the subscription", _state_digits()),
        promise("versions kept for {} days", bootstrap_state.OLD_VERSIONS_KEPT_DAYS),
        promise("deleted blobs and containers for {} |", bootstrap_state.DELETED_KEPT_DAYS),
        promise("{} days of soft delete", bootstrap_state.VAULT_KEPT_DAYS),
        promise("`az keyvault recover`, within {} days", bootstrap_state.VAULT_KEPT_DAYS),
    ),
    "docs/azure-identities.md": (
        promise(
            "{} GB in test, {} GB in prod | {} days in test, {} in prod |",
            *(LOGS["test"].daily_gb, LOGS["prod"].daily_gb),
            *(LOGS["test"].kept_days, LOGS["prod"].kept_days),
        ),
        promise(
            "none | {} days in test, {} in prod |", LOGS["test"].audit_days, LOGS["prod"].audit_days
        ),
        promise("metrics every {} minutes.", minutes(parse_iso_duration(alerts.LOOKS_EVERY) or 0)),
        promise("`launch cluster resume` | {} hour |", hours(_window("idle-nodes"))),
        promise("`Unusable Nodes` never {} | {} minutes |", *_limit("unusable-nodes", 60)),
        promise("`Quota Utilization Percentage` above {} | {} hour |", *_limit("quota", 3600)),
        promise(
            "`GpuUtilizationPercentage` below {} on average, while a job holds them | {} hour |",
            *_limit("idle-gpus", 3600),
        ),
        promise("`Idle Nodes` never {}:", alerts._ALERTS["idle-nodes"].threshold),
    ),
    "docs/azure.md": (
        promise("it waits {} minutes, as Azure applies", minutes(ROLE_WAIT_S)),
        promise(
            "seconds to wait after new role assignments, when the stack is made; default {} |",
            ROLE_WAIT_S,
        ),
        promise("U2: {} s are enough for roles", ROLE_WAIT_S),
        promise(
            '`{cost-center: "42"}`; {}, and {} in a stack that makes its DNS zones',
            *(
                settings._MAX_TAGS - len(settings._OUR_TAGS),
                settings._MAX_ZONE_TAGS - len(settings.TAGS),
            ),
        ),
        promise("of its endpoints in it: /{} to /{}; default", values._WIDEST, values._NARROWEST),
        promise("wait {} minutes, which a new role may take", ROLE_MIN),
        promise("a new one works after up to {} minutes |", ROLE_MIN),
        promise("{} to {} small letters and digits that begin", *lengths(values.Prefix)),
        promise(
            "mails at {}, {}, {}, {} %, and when {} % is foreseen",
            *(each for each, _ in budget._MILESTONES),
        ),
        promise(
            'beside the stack\'s own: `{cost-center: "42"}`; {}, and {} in a stack', *_tags_left()
        ),
        promise("of its endpoints in it: /{} to /{};", values._WIDEST, values._NARROWEST),
        promise(
            "default {} (dev), {}, {} and their lower half",
            settings._ADDRESSES["dev"],
            *(settings._ADDRESSES[stage].removesuffix(".0.0/24") for stage in STAGES[1:]),
        ),
        promise(
            "peered with `vnet-NAME-STACK` ({}, {})",
            settings._ADDRESSES["test"],
            settings._ADDRESSES["prod"],
        ),
        promise("| `max_nodes` at most | {} | {} | {} |", *_most("cluster-max-nodes")),
        promise("| `min_nodes` | {} | {} | {} |", *_fewest_nodes()),
        promise("| `idle_s` at most | {} | {} | {} |", *_most("cluster-idle-time")),
        promise("| nodes of all clusters together, at most | {} | {} |", *NODES_TOGETHER.values()),
        promise(
            "| deleted blobs come back for | {} days | {} days | {} days, old versions {} |",
            *(DATA[stage].deleted_days for stage in STAGES),
            DATA["prod"].old_days,
        ),
        promise(
            "| copies of data | one datacentre ({}) | three zones ({}) | zones and a second region ({}) |",
            *(DATA[stage].sku.removeprefix("Standard_") for stage in STAGES),
        ),
        promise(
            "| purge protection of the vault | no | {} days | {} days |",
            *(vault._DELETED_DAYS[stage] for stage in STAGES[1:]),
        ),
        promise(
            "to the cool tier after | {} days | {} days | {} days |",
            *(DATA[stage].old_days for stage in STAGES),
        ),
        promise(
            "taken in, at most | {} GB a day | {} GB a day | {} GB a day |",
            *(LOGS[stage].daily_gb for stage in STAGES),
        ),
        promise("data capped at {}, {}, {} GB a day", *(LOGS[stage].daily_gb for stage in STAGES)),
        promise(
            "| no | {} days | {} days | | Azure's own policies",
            *(LOGS[stage].audit_days for stage in STAGES[1:]),
        ),
        promise("a month of {} hours", clusters.HOURS_A_MONTH),
        promise("`infra/tables/sizes.csv` knows some {}:", _num_sizes()),
        promise("that have had no tag for {} days", registry._UNTAGGED_DAYS),
        promise(
            "A deleted vault keeps its name for {} days in dev and test, for {} in prod",
            *(vault._DELETED_DAYS["dev"], vault._DELETED_DAYS["prod"]),
        ),
        promise("the images' CUDA {} cannot use", _cuda_of_images()),
        promise("can settle, for under {} USD", prove.LIMIT),
        promise("`launch env check -s prod`: exits {} unless", int(ExitCode.REFUSED)),
    ),
    "docs/clusters.md": (
        promise("(prices.azure.com, no login) of the last {} days", prices.FRESH_S / 86400),
        promise(
            "at most once {} week, for at most {} s", a(weeks(prices.FRESH_S)), prices.ANSWER_S
        ),
        promise("it is not asked for {} hour", an(hours(prices.SILENCE_S))),
        promise("A job above the limit is refused (exit code {})", int(ExitCode.REFUSED)),
        promise("`FAILED` (exit code {}): not even one node", int(ExitCode.ENVIRONMENT)),
    ),
    "docs/adding-a-cluster.md": (
        promise("{} mandatory rules, no violation", len(pack.RULES)),
        promise("{} mandatory rules, 1 violation", len(pack.RULES)),
    ),
    "docs/prove-azure.md": (
        promise("| `--limit USD` | {} where none", prove.LIMIT),
        promise("- Money: under {} USD.", prove.LIMIT),
        promise(
            "one with Python {}, and one",
            *written_in("tools/prove_azure/jobs/hello.yaml", r"python:([\d.]+)-"),
        ),
        promise("`launch` wants {} on nodes", least_python(node_job._MAIN)),
        promise("people are cut to their first {} digits", _digits_shown()),
    ),
    "tools/prove_azure/__main__.py": (
        promise("{} to {} letters and digits of every name", *lengths(values.Prefix)),
    ),
    "infra/bootstrap_state.py": (
        promise(
            "begins every name: {} of a-z0-9", "{}-{}".format(*lengths_of(bootstrap_state.NAME))
        ),
    ),
}

_ADVICE = "advice, not a figure of ours"
_AZURES = "Azure's own figure"
NO_PROMISES: dict[str, tuple[NoPromise, ...]] = {
    "docs/azure-jobs.md": (
        NoPromise(r"became a time limit of 1 h 51 min", "an example"),
        NoPromise(r"more than one TensorFlow worker", "a count of an assumption"),
    ),
    "docs/azure-messages.md": (NoPromise(r"type the same again in a minute", _ADVICE),),
    "docs/azure.md": (
        NoPromise(r'\("around 30 minutes"', _AZURES),
        NoPromise(r"\| up to 10 minutes \(learn.microsoft.com, role-based", _AZURES),
        NoPromise(r"2 to 64 vCPUs and more, 4 GB each", "the table of sizes (test_azure_tables)"),
        NoPromise(
            r"private endpoints of the virtual network \|.*?a month of 730 hours", "list prices"
        ),
        NoPromise(r"keep nodes warm for an hour", "an example"),
        NoPromise(r"a notebook server on port 9999", "of an old script"),
        NoPromise(r"an account SAS of a month", "of an old script"),
        NoPromise(r"of one container for 24 hours at most", _ADVICE),
        NoPromise(r"ranges up to /30", "Azure Storage's own"),
        NoPromise(r"Log Analytics workspace keeps its name for 14 days", _AZURES),
    ),
    "launch cluster --help": (NoPromise(r"minimum, but at least 1", "held by test_clusters.py"),),
    "docs/prove-azure.md": (
        NoPromise(r"up to six hours, .*? takes 30 minutes", "an estimate"),
        NoPromise(r"0\.20 USD an hour", "list price"),
        NoPromise(r"brings Python 3\.8 \(Azure/", "Microsoft's own"),
        NoPromise(r"## Assumptions.*", "written by tools/prove_azure/pages.py"),
    ),
}
