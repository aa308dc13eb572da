"""Lists what Azure may do otherwise, the steps that meet it, and the assumptions that are named.

`python -m tests.tools.prove_azure.deviations [NAME...]` proves against each of them and writes the
table of docs/prove-azure.md (about ten minutes on two cores for all).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.images.runtimes import PROJECT, runtime_python
from tests.fakes.azureml import Deviation
from tests.fakes.one_azure.proof import Proof, standing_proof
from tools.marked import put_between
from tools.prove_azure.report import scrub
from tools.prove_azure.unknowns import BY_ID

D = Deviation
PAGE = Path(__file__).parents[3] / "docs" / "prove-azure.md"
HEADER = ("| deviation | steps | named | words, shortened |", "| --- | --- | --- | --- |")
LONGEST = 160
BEGIN, END = "<!-- deviations: begin -->", "<!-- deviations: end -->"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One deviation; `on_a_stack` says that it meets a stack that is up already."""

    deviation: Deviation
    steps: tuple[str, ...]
    named: tuple[str, ...]
    on_a_stack: bool = True
    is_quick: bool = True


def _row(
    deviation: Deviation,
    steps: str,
    named: str,
    *,
    on_a_stack: bool = True,
    is_quick: bool = True,
) -> Row:
    return Row(
        deviation=deviation,
        steps=tuple(steps.split(", ")),
        named=tuple(named.split()),
        on_a_stack=on_a_stack,
        is_quick=is_quick,
    )


ROWS = (
    _row(D.PROVIDER_UNREGISTERED, "look", "U34", on_a_stack=False),
    _row(D.SIZE_MISSING, "ask", "U9", on_a_stack=False, is_quick=False),
    _row(D.NO_AZURE_ML_IN_REGION, "ask", "U1", on_a_stack=False, is_quick=False),
    _row(D.REGION_REFUSED, "ask", "U1", on_a_stack=False),
    _row(D.DATASTORES_MISSING, "check", "U3"),
    _row(D.ARTIFACT_STORE_MISSING, "check", "U3"),
    _row(D.NETWORK_INACTIVE, "check", "U4"),
    _row(D.NETWORK_FAILED, "check", "U4"),
    _row(D.ROLE_MISSING, "check", "U2"),
    _row(D.PRIVATE_HOST_ONLY, "check", "U5"),
    _row(D.LOG_NAMES, "hello", "U25"),
    _row(D.LOGS_AT_END, "logs", "U26", is_quick=False),
    _row(D.WORDS, "fails, pull, limit", "U22 U23 U24", is_quick=False),
    _row(D.NO_NODE_IDENTITY, "secret", "U18"),
    _row(D.SECRETS_REFUSED, "secret", "U27"),
    _row(D.RANKS_IN_TURN, "mpi", "U19"),
    _row(D.MPIRUN_FAILS, "train", "U17", is_quick=False),
    _row(D.BUILD_REFUSED, "image", "U15", is_quick=False),
    _row(D.FOLDER_READ_ONLY, "image", "U16", is_quick=False),
    _row(D.OLDEST_FIRST, "hello, mpi, newest first", "U32", is_quick=False),
    _row(D.PUT_BEGINS_AGAIN, "twice", "U36", is_quick=False),
    _row(D.DATA_ROLE_MISSING, "stream", "U29"),
    _row(D.STREAM_REFUSED, "stream", "U28", is_quick=False),
    _row(D.SCALE_IGNORED, "resize", "U30"),
    _row(D.CANCEL_FAILS_RUN, "logs", "U33", is_quick=False),
    _row(D.TAGS_FIXED, "tag", "U7", is_quick=False),
    # These end without a stack.
    _row(D.DELETE_NEEDS_ARGUMENT, "destroy", "U6"),
    _row(D.GROUP_STAYS, "up, destroy", "U14", on_a_stack=False, is_quick=False),
    _row(D.ROLES_LATE, "up", "U2", on_a_stack=False, is_quick=False),
    _row(D.NETWORK_LATE, "up", "U4", on_a_stack=False, is_quick=False),
    _row(D.API_VERSION_BROKEN, "up", "U8", on_a_stack=False, is_quick=False),
    _row(D.SIZE_RESTRICTED, "up", "U9", on_a_stack=False, is_quick=False),
    _row(D.QUOTA_REFUSES_CLUSTER, "up", "U10", on_a_stack=False, is_quick=False),
    _row(D.ADDRESSES_REWRITTEN, "up, settled", "U12", on_a_stack=False, is_quick=False),
    _row(D.WORKSPACE_NAME_KEPT, "up, destroy, up again", "U13", on_a_stack=False, is_quick=False),
)


def prove(proof: Proof, row: Row) -> dict[str, str]:
    """Take the steps of a row with its deviation on; what the report denies, with its words."""
    proof.azure.deviate(row.deviation)
    keep = ("--keep",) if row.on_a_stack else ()
    before = () if row.on_a_stack else ("ask",)
    proof.prove("--only", *before, *row.steps, *keep)
    return proof.denied()


def write_row(row: Row, said: dict[str, str]) -> str:
    """Write a line of the page's table."""
    words = " / ".join(_telling(each, said[each]) for each in row.named)
    short = words if len(words) <= LONGEST else f"{words[: LONGEST - 3]}..."
    steps, named = ", ".join(row.steps), ", ".join(row.named)
    return f"| `{row.deviation}` | {steps} | {named} | {scrub(short).replace('|', '/')} |"


def _telling(unknown: str, words: str) -> str:
    """The line that denies an assumption, else the first."""
    lines = words.splitlines()
    return next((line for line in lines if BY_ID[unknown].is_denied_by(line)), lines[0])


def write_table(lines: dict[str, str]) -> None:
    """Put lines into the page's table, in the order of the rows; others stay."""
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition(BEGIN)[2].partition(END)[0]
    known = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")}
    known |= lines
    ordered = [known[row.deviation] for row in ROWS if row.deviation in known]
    written = "".join(f"{line}\n" for line in [*HEADER, *ordered])
    PAGE.write_text(put_between(page, BEGIN, END, f"\n{written}"), encoding="utf-8")


def find_runtimes() -> dict[str, Path]:
    """Find what stands for the images; `acpt` and `devcontainers` are Microsoft's."""
    ours = runtime_python("pytorch", PROJECT)
    return {
        "pytorch": ours,
        "acpt": ours,
        "devcontainers": Path(sys.executable),
        "tensorflow": runtime_python("tensorflow", PROJECT),
    }


def main(names: Sequence[str]) -> int:
    """Prove the named rows, all where none is named; 1 where one was not named by the report."""
    code = 0
    with tempfile.TemporaryDirectory(prefix="prove-") as folder:
        with standing_proof(Path(folder) / "azure", find_runtimes()) as proof:
            kept = Path(folder) / "kept"
            proof.prove("--only", "ask", "up", "--keep")
            proof.keep(kept)
            for row in [each for each in ROWS if not names or each.deviation in names]:
                proof.restore(kept) if row.on_a_stack else proof.forget()
                said = prove(proof, row)
                if set(said) == set(row.named):
                    write_table({row.deviation: write_row(row, said)})
                else:
                    code = 1
                    print(f"NOT NAMED: {row.deviation}: {said}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
