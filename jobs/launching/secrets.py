"""Finds the values of a job's secrets on this machine: the environment, then `.secrets.env`.

Only for stacks without a Key Vault; on Azure the ranks fetch theirs by identity. Values go to
`Engine.submit` and nowhere else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Environment, JobSpec
from jobs.host import console

FILE_NAME = ".secrets.env"


def find_secrets(
    spec: JobSpec,
    environment: Environment,
    folders: Sequence[Path],
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Find the values by variable name, for what the job declares under `secrets`.

    The first of `folders` that has a `.secrets.env` gives the file. Raises one LaunchError that
    names every secret without a value.
    """
    if environment.key_vault is not None or not spec.secrets:
        return {}
    given = os.environ if variables is None else variables
    file = next((folder / FILE_NAME for folder in folders if (folder / FILE_NAME).is_file()), None)
    written = _read(file) if file else {}
    found = {
        variable: value
        for variable, secret in spec.secrets.items()
        if (value := given.get(variable) or written.get(variable) or written.get(secret))
    }
    missing = [variable for variable in spec.secrets if variable not in found]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        message = f"no value for the secret{'s' if len(missing) > 1 else ''} {names}"
        place = file or folders[0] / FILE_NAME
        hint = f"export {missing[0]}=..., or a line {missing[0]}=... in {place} (git-ignored)"
        raise LaunchError(message, hint=hint)
    return found


def _read(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8-sig")
        mode = file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read `{file}`: {getattr(error, 'strerror', None) or 'not UTF-8 text'}"
        raise LaunchError(message, hint=f"chmod 600 {file}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        console.warn(f"`{file}` can be read by others; chmod 600 {file}")
    values: dict[str, str] = {}
    # Not `splitlines`: that cuts a value at U+2028, form feeds and more.
    for number, line in enumerate(text.split("\n"), start=1):
        if "\0" in line:
            message = f"{file}:{number}: variables cannot contain a NUL character"
            raise LaunchError(message, hint="save it as UTF-8")
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals:
            # The line itself may be a secret: its number has to do.
            message = f"{file}:{number}: not NAME=value"
            raise LaunchError(message, hint="write one NAME=value per line; # begins a comment")
        values[name.strip()] = _unquoted(value.strip())
    return values


def _unquoted(value: str) -> str:
    is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if is_quoted else value
