"""Parses a stack's configuration into settings; every wrong key in one message.

Checked before anything is declared, so that a wrong setting creates nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

from infra.cloud.settings import STAGES, CloudSettings, parse_cloud, stage_of
from infra.local.settings import LocalSettings, parse_local
from infra.models import PROJECT, SettingsError, decode_config

ENGINES = ("local", "azureml")


def find_project_root() -> Path:
    """Find the folder of Pulumi.yaml: the working folder, which Pulumi sets to main's, or above."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "Pulumi.yaml").is_file():
            return folder
    problem = f"no Pulumi.yaml in {Path.cwd()} or above"
    raise SettingsError([problem])


def parse_settings(
    config: Mapping[str, str], *, stack: str, root: Path, today: datetime.date
) -> LocalSettings | CloudSettings:
    """Check the stack's configuration as Pulumi hands it over (`trainyard:key` -> value).

    Raises SettingsError with every problem found.
    """
    problems: list[str] = []
    values = decode_config(config)
    engine = values.get("engine")
    if engine is None:
        problems.append(f"{PROJECT}:engine: is missing")
    # A stack that does not say what it is for is judged by its name, so that the rest is judged too.
    is_cloud = engine == "azureml" or (engine not in ENGINES and stage_of(stack) in STAGES)
    if is_cloud:
        subscription = config.get("azure-native:subscriptionId")
        settings = parse_cloud(
            values, stack=stack, subscription=subscription, today=today, problems=problems
        )
    else:
        settings = parse_local(values, root=root, problems=problems)
    if settings is None or problems:
        raise SettingsError(problems)
    return settings
