"""Drops the old names of resource types, which no stack of ours ever had."""

from __future__ import annotations

import pulumi


def without_aliases(
    args: pulumi.ResourceTransformationArgs,
) -> pulumi.ResourceTransformationResult:
    """Drop a resource's aliases: the SDK names up to 70 old API versions of each type and spends
    most of a program's time on them (200 clusters take 1 s instead of 8).

    They are for stacks that older majors of azure-native made. Who takes the next major lets them
    through for its first `up`: a preview that wants to replace everything says so.
    """
    args.opts.aliases = None
    return pulumi.ResourceTransformationResult(args.props, args.opts)
