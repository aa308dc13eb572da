"""`launch completion`: print the script by which a shell completes `launch`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from jobs.commands.usage import make_app
from jobs.host import console

# After typer's function: a word with `@` in it is one word, and after a folder or `KEY=` more is typed.
BASH = """
COMP_WORDBREAKS=${COMP_WORDBREAKS//@}
_launch_words() {
    _launch_completion "$@"
    [[ ${#COMPREPLY[@]} -gt 1 || ${COMPREPLY-} != *[/=] ]] || compopt -o nospace
}
complete -o default -F _launch_words launch"""


def print_script(
    *,
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"],
        typer.Argument(metavar="SHELL", help="Shell: bash, zsh, fish or powershell."),
    ],
) -> None:
    """Print the script by which a shell completes `launch`.

    Load it when the shell starts; docs/command-line.md has the line for each shell.
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="launch", complete_var="_LAUNCH_COMPLETE", shell=shell)
    console.out(script + BASH if shell == "bash" else script)


app = make_app({"completion": print_script})
