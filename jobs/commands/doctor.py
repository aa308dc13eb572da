"""`launch doctor`: check this machine; name missing parts and the commands that install them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.contracts.errors import ExitCode
from jobs.host import console
from jobs.host.pulumi_command import as_typed_here

if TYPE_CHECKING:
    from jobs.stacks.checks import Check


def doctor(*, json: options.Json = False, stack: options.Stack, env: options.EnvFile = None) -> int:
    """Check this machine and name what is missing.

    Also checks the stack. Prints the command that installs each missing part. Sets Trainyard's folders to
    mode 0700 and changes nothing else. The exit code is 1 if a required part is missing.
    """
    from jobs.stacks.checks import Health
    from jobs.stacks.doctor import diagnose

    checks: list[Check] = []
    for check in diagnose(stack, env):
        checks.append(check)
        if not json:
            _print(check)
    missing = [check for check in checks if check.health is Health.MISSING]
    if json:
        console.out_json(checks)
    elif missing:
        console.say(f"\n{len(missing)} missing: {', '.join(check.part for check in missing)}")
    return int(ExitCode.ENVIRONMENT if missing else ExitCode.SUCCEEDED)


def _print(check: Check) -> None:
    colours: dict[str, console.Style] = {"ok": "green", "note": "yellow", "missing": "red"}
    word = console.styled(f"{check.health.value:<7}", colours[check.health.value])
    console.out(f"{word}  {check.part}: {check.found}")
    if check.mend:
        console.out(f"{'':<9}{console.styled(as_typed_here(check.mend), 'bold')}")


app = make_app({"doctor": doctor})
