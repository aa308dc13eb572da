"""The table of contents: settings -> platform -> outputs."""

from __future__ import annotations

import datetime
import gc

import pulumi
from pulumi.runtime import get_config_env

from infra import outputs
from infra.cloud.settings import CloudSettings, doubts
from infra.settings import SettingsError, find_project_root, parse_settings


def main() -> None:
    """Declare the stack that Pulumi runs; nothing is declared when a setting is wrong."""
    # The SDK's classes are all that there is to look through: a tenth of the program's time.
    gc.disable()
    stack = pulumi.get_stack()
    try:
        settings = parse_settings(
            get_config_env(),
            stack=stack,
            root=find_project_root(),
            today=datetime.datetime.now(datetime.UTC).date(),
        )
    except SettingsError as error:
        message = f"Pulumi.{stack}.yaml: {error}"
        # RunError alone is shown without a traceback.
        raise pulumi.RunError(message) from error
    # Each platform's libraries load with it alone: azure-native is no part of a laptop's stack.
    if isinstance(settings, CloudSettings):
        from infra.cloud.platform import CloudPlatform

        for doubt in doubts(settings):
            pulumi.log.warn(f"Pulumi.{stack}.yaml: {doubt}")
        environment = outputs.cloud_environment(CloudPlatform("cloud", settings))
    else:
        from infra.local.platform import LocalPlatform

        environment = outputs.local_environment(stack, LocalPlatform("local", settings))
    pulumi.export(outputs.ENVIRONMENT, environment)
