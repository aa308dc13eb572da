"""`launch completion`: the script by which a shell completes `launch`."""

from __future__ import annotations

from jobs.commands.parser import CommandParser
from jobs.host import console

# What a shell reads at its start has to hold this line; docs/command-line.md names the file.
LINES = {
    "bash": 'eval "$(launch completion bash)"',
    "zsh": 'eval "$(launch completion zsh)"',
    "fish": "launch completion fish | source",
}


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    parser.epilog = "To be read at the start of the shell: " + "; ".join(LINES.values())
    parser.add_argument("shell", choices=LINES, help="Which shell.")
    parser.set_defaults(act=print_script)


def print_script(*, shell: str) -> None:
    """Print the script; nothing is written to anybody's settings."""
    from argcomplete.shell_integration import shellcode

    console.out(shellcode(["launch"], shell=shell).rstrip("\n"))
