"""A fake of buildah, podman and docker: a program that keeps images as names and notes its calls.

`install` puts it into a folder under the name of the engine it plays. It lives as a script of its
own, since what is tested starts a program.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from pathlib import Path

SBOM = b'{"bomFormat": "CycloneDX"}\n'
DIGEST = f"sha256:{'5' * 64}"


def install(folder: Path, name: str) -> Path:
    """Make the program that plays `name`; its state lies beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    # -IS: it imports nothing but the standard library, and is started hundreds of times.
    program.write_text(f"#!{sys.executable} -IS\n{Path(__file__).read_text()}")
    program.chmod(0o755)
    return program


def calls(program: Path) -> list[dict[str, object]]:
    """What the program was called with, in order; of a build also what it was given."""
    notes = program.with_name("calls.jsonl")
    return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


class Engine:
    """One call: the engine's name, its arguments, and the images there are."""

    def __init__(self) -> None:
        self.here = Path(sys.argv[0]).resolve().parent
        self.name, self.arguments = Path(sys.argv[0]).name, sys.argv[1:]
        self.words = [each for each in self.arguments if not each.startswith("-")]
        given = [each[2:] for each in self.arguments if each.startswith("--")]
        self.options = dict(each.split("=", 1) for each in given if "=" in each)
        self.note: dict[str, object] = {"arguments": self.arguments}
        self.store = self.here / "images.json"
        self.images: list[str] = json.loads(self.store.read_text()) if self.store.exists() else []

    def answer(self) -> int:
        verb = "inspect" if "inspect" in self.words else self.words[0]
        if verb in os.environ.get("FAKE_ENGINE_FAILS", "").split():
            said = os.environ.get("FAKE_ENGINE_SAYS", f"fake {self.name} was told to fail")
            print(said, file=sys.stderr)
            return 125
        code = getattr(self, f"do_{verb}", lambda: 0)()
        self.store.write_text(json.dumps(self.images))
        return code or 0

    def do_build(self) -> None:
        context = Path(self.words[-1])
        files = (path for path in context.rglob("*") if path.is_file())
        self.note["context"] = sorted(path.relative_to(context).as_posix() for path in files)
        lent = [each for each in self.arguments if each.startswith("--secret=")]
        self.note["secrets"] = [Path(each.partition("src=")[2]).read_text() for each in lent]
        steps = ["[1/2] STEP 1/2: RUN make", "[2/2] STEP 1/1: FROM debian"]
        if self.name == "docker":
            steps = ["#7 [builder 1/2] RUN make", "#8 [stage-1 1/1] FROM debian"]
        print("\n".join(steps))
        self.images.append(self.options["tag"])

    def do_images(self) -> None:
        print("\n".join(self.images))

    def do_inspect(self) -> int:
        if "--format" in self.arguments:
            print(json.dumps([f"{self.words[-1].rpartition(':')[0]}@{DIGEST}"]))
        return 0 if self.words[-1] in self.images else 1

    def do_from(self) -> None:
        print("a-container")

    do_create = do_from

    def do_run(self) -> None:
        sys.stdout.buffer.write(SBOM)

    def do_cp(self) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as opened:
            member = tarfile.TarInfo("sbom.cdx.json")
            member.size = len(SBOM)
            opened.addfile(member, io.BytesIO(SBOM))
        sys.stdout.buffer.write(archive.getvalue())

    def do_tag(self) -> None:
        self.images.append(self.words[-1])

    def do_push(self) -> None:
        if "digestfile" in self.options:
            Path(self.options["digestfile"]).write_text(DIGEST)


def main() -> int:
    engine = Engine()
    code = engine.answer()
    with (engine.here / "calls.jsonl").open("a") as notes:
        notes.write(json.dumps(engine.note) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
