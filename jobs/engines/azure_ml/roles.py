"""Check that each role that a stack has given is listed by Resource Manager, and since when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.parallel import parallel
from jobs.host.untrusted import parse_rows
from jobs.stacks.grants import Grant
from jobs.stacks.reachability import PartCheck

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient

Grants = Callable[[], Sequence[Grant]]
ROLES_API_VERSION = "2022-04-01"
ROLES = "roles"
# https://learn.microsoft.com/azure/role-based-access-control/troubleshooting
UNTIL_IN_FORCE = timedelta(minutes=10)


class _Assignment(Struct, frozen=True, kw_only=True, rename="camel"):
    scope: str
    role_definition_id: str
    principal_id: str
    created_on: datetime | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What Azure knows one assignment by."""
        role = self.role_definition_id.rpartition("/")[2]
        return self.scope.lower(), role.lower(), self.principal_id.lower()


class _AssignmentRow(Struct, frozen=True, kw_only=True):
    properties: _Assignment


def check_roles(client: ArmClient, grants: Grants | None) -> list[PartCheck]:
    """Check each role that the stack has given; one that nobody has is a check of its own.

    `grants` is None where only a copy of the stack's outputs is there. Raises CloudRefusal.
    """
    stack = client.environment.stack
    if grants is None:
        detail = "not asked: the stack's record lists them, and a copy of its outputs does not"
        return [_unknown(detail, f"`launch env check -s {stack}` in the stack's project")]
    try:
        given = grants()
    except EnvironmentFailure as failure:
        detail = f"not asked: the stack's record cannot be read: {failure.message}"
        return [_unknown(detail, failure.hint or "")]
    places = sorted({(_group_of(each.scope), each.principal_id) for each in given})
    listed = parallel(lambda place: _list_roles(client, *place), places)
    there = {each.key: each for rows in listed for each in rows}
    missing = [each for each in given if _key(each) not in there]
    if missing:
        mend = f"`pulumi up --refresh -s {stack}` gives it again; it works after up to 10 minutes"
        return [
            PartCheck(
                part=f"role {each.name}",
                ok=False,
                detail=f"nobody has it on {each.scope.rpartition('/')[2]}: it was taken away",
                mend=mend,
            )
            for each in missing
        ]
    times = [there[_key(each)].created_on for each in given]
    return [PartCheck(part=ROLES, ok=True, detail=f"all {len(given)} given{_age(times)}")]


def _unknown(detail: str, mend: str) -> PartCheck:
    return PartCheck(part=ROLES, ok=False, known=False, detail=detail, mend=mend)


def _key(grant: Grant) -> tuple[str, str, str]:
    return grant.scope.lower(), grant.role_id, grant.principal_id


def _age(times: Sequence[datetime | None]) -> str:
    """Say where the newest role may not be in force yet."""
    known = [when for when in times if when is not None and when.tzinfo is not None]
    if not known:
        return ""
    age = datetime.now(UTC) - max(known)
    if age > UNTIL_IN_FORCE:
        return ""
    minutes = max(round(age.total_seconds() / 60), 0)
    return f", the newest {minutes} min ago: it works after up to 10 min"


def _list_roles(client: ArmClient, scope: str, principal: str) -> list[_Assignment]:
    """List a principal's roles at, above and below a scope."""
    listed = client.pages(
        f"{scope}/providers/Microsoft.Authorization/roleAssignments",
        api_version=ROLES_API_VERSION,
        query={"$filter": f"principalId eq '{principal}'"},
        what="listing roles",
    )
    return [each.properties for each in parse_rows(listed, _AssignmentRow)]


def _group_of(scope: str) -> str:
    """Cut the resource group out of a scope; one list of its roles tells of all that is in it."""
    return "/".join(scope.split("/")[:5])
