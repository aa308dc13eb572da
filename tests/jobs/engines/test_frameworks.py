"""How long frameworks wait comes from `limits.hang`, on every engine."""

from __future__ import annotations

import pytest

from jobs.contracts.spec import Limits
from jobs.engines.azure_ml.node_job import environment_variables
from jobs.engines.frameworks import LONGEST_PATIENCE_S, stall_environment, torch_environment
from jobs.engines.local.launchers import gang_request
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_cluster, make_spec

TIMEOUT = "TRAINYARD_COLLECTIVE_TIMEOUT_S"


@pytest.mark.parametrize(("hang_s", "timeout_s"), [(1800.0, 1860), (0.5, 61), (None, None)])
def test_collectives_time_out_a_minute_after_a_hang_is_found(
    hang_s: float | None, timeout_s: int | None
) -> None:
    limits = Limits(wall_clock_s=None, hang_s=hang_s)
    told = torch_environment(limits, has_store=False)[TIMEOUT]
    assert told == str(timeout_s or LONGEST_PATIENCE_S)
    stalls = {"HOROVOD_STALL_CHECK_TIME_SECONDS": told}
    if timeout_s is not None:
        stalls["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = str(timeout_s + 60)
    assert stall_environment(limits) == stalls


def test_both_engines_tell_torchs_ranks_unless_the_job_does() -> None:
    limits = Limits(wall_clock_s=None, hang_s=600.0)
    for own, told in (({}, "660"), ({TIMEOUT: "5"}, "5")):
        spec = make_spec(["python"], launcher="torch", limits=limits, env=own)
        assert gang_request(spec, make_cluster()).env[TIMEOUT] == told
        environment = make_cloud_environment()
        variables = environment_variables(spec, environment, run="a", attempt=1)
        assert variables[TIMEOUT] == told
