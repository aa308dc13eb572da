"""Declares the stack: settings -> platform -> outputs."""

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
    stack, config = pulumi.get_stack(), get_config_env()
    try:
        settings = parse_settings(
            config,
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
        from infra.cloud.account import why_unpinned
        from infra.cloud.platform import CloudPlatform

        platform = CloudPlatform("cloud", settings)
        subscription_id = platform.context.names.subscription_id
        unpinned = why_unpinned(config, stack=stack, subscription_id=subscription_id)
        for doubt in filter(None, (*doubts(settings), unpinned)):
            pulumi.log.warn(f"Pulumi.{stack}.yaml: {doubt}")
        environment = outputs.cloud_environment(platform)
    else:
        from infra.local.platform import LocalPlatform

        environment = outputs.local_environment(stack, LocalPlatform("local", settings))
    pulumi.export(outputs.ENVIRONMENT, environment)
