"""Parses a stack's configuration into settings; every wrong key in one message.

Checked before anything is declared, so that a wrong setting creates nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

from infra.cloud.settings import STAGES, CloudSettings, parse_cloud, stage_of
from infra.local.settings import LocalSettings, parse_local
from infra.sections import SettingsError, open_sections

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
    top = open_sections(config, problems)
    engine = top.take_choice("engine", ENGINES)
    # A stack that does not say what it is for is judged by its name, so that the rest is judged too.
    is_cloud = engine == "azureml" or (bool(problems) and stage_of(stack) in STAGES)
    settings = (
        parse_cloud(top, stack=stack, today=today) if is_cloud else parse_local(top, root=root)
    )
    if problems:
        raise SettingsError(problems)
    return settings
