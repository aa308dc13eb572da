"""Builds the options of a resource that names others in plain text, which the engine cannot see."""

from __future__ import annotations

import pulumi


def replaced_with(
    parent: pulumi.Resource, *others: pulumi.Resource, retained: bool = False
) -> pulumi.ResourceOptions:
    """Have a resource made after the others, and made again with any of them.

    Azure deletes what is in a resource with the resource, so a replaced account needs its
    containers again although none of their inputs changed. Old before new: both have one name,
    and a deletion that came last would take the new one.
    """
    return pulumi.ResourceOptions(
        parent=parent,
        depends_on=list(others),
        replace_with=list(others),
        delete_before_replace=True,
        retain_on_delete=retained,
    )
