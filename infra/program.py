"""The table of contents: settings -> platform -> outputs."""

from __future__ import annotations

import pulumi
from pulumi.runtime import get_config_env

from infra import outputs
from infra.local.platform import LocalPlatform
from infra.settings import SettingsError, find_project_root, parse_settings


def main() -> None:
    """Declare the stack that Pulumi runs; nothing is declared when a setting is wrong."""
    stack = pulumi.get_stack()
    try:
        settings = parse_settings(get_config_env(), root=find_project_root())
    except SettingsError as error:
        message = f"Pulumi.{stack}.yaml: {error}"
        # RunError alone is shown without a traceback.
        raise pulumi.RunError(message) from error
    platform = LocalPlatform("local", settings)
    pulumi.export(outputs.ENVIRONMENT, outputs.environment(stack, platform))
