"""Reading a packed dataset from a store that is 20 ms away, against reading it from the disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.bench.table import Row
from tests.fakes.packed_dataset import stream_variables, write_packed, write_stream_input

DELAY_S = 0.02
NUM_RANKS = 2
SAMPLE_S = 0.01
# Of the cache, in windows of eight shards.
BOUNDS = (1.5, 2.2)
AMPLE = 4.0
SAS = "sig=first"


def stream_rows(project: Path, rounds: int) -> list[Row]:
    """Rate with a cold cache that holds the dataset; bytes fetched with caches that do not."""
    with tempfile.TemporaryDirectory(prefix="streams-") as folder:
        packed = Path(folder) / "packed"
        write_packed(packed, num_shards=24, samples_each=150, largest=220_000)
        total = sum(file.stat().st_size for file in (packed / "train").glob("*.tar"))
        local, streamed = [], []
        for _ in range(rounds):
            local.append(_read(project, packed, {}))
            streamed.append(_stream(project, packed, AMPLE * total / 3, DELAY_S)[0])
        rows = [
            Row(
                goal="samples/s of two ranks, streamed with 20 ms a request: cold cache",
                ours=f"{median(streamed):.0f}/s",
                peer=f"local shards: {median(local):.0f}/s",
                ratio=median(streamed) / median(local),
                at_least=0.9,
            )
        ]
        for bound in BOUNDS:
            _, fetched = _stream(project, packed, bound * total / 3, 0.0)
            rows.append(
                Row(
                    goal=f"bytes fetched in an epoch, cache of {bound} windows",
                    ours=f"{fetched / 1e6:.0f} MB",
                    peer=f"the dataset: {total / 1e6:.0f} MB",
                    ratio=fetched / total,
                    at_most=1.05,
                )
            )
        return rows


def _read(project: Path, folder: Path, variables: dict[str, str]) -> float:
    program = project / "tests" / "bench" / "ranks" / "stream_readers.py"
    arguments = [str(folder), str(NUM_RANKS), str(SAMPLE_S)]
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        env={"PYTHONPATH": str(project), **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _stream(project: Path, packed: Path, cache_bytes: float, delay_s: float) -> tuple[float, int]:
    """Give the rate and the bytes that the store sent."""
    with _store(project, packed, delay_s) as store:
        assert store.stdout is not None
        assert store.stdin is not None
        port = int(store.stdout.readline())
        scratch = Path(tempfile.mkdtemp(dir=packed.parent))
        folder = write_stream_input(
            scratch / "input",
            packed,
            endpoint=f"http://127.0.0.1:{port}/account/data",
            cache=scratch / "cache",
            cache_bytes=int(cache_bytes),
            sas=SAS,
        )
        rate = _read(project, folder, stream_variables(folder))
        store.stdin.write("\n")
        store.stdin.flush()
        fetched = int(store.stdout.readline())
        shutil.rmtree(scratch)
    return rate, fetched


@contextmanager
def _store(project: Path, packed: Path, delay_s: float) -> Generator[subprocess.Popen[str]]:
    program = project / "tests" / "bench" / "ranks" / "stream_store.py"
    with subprocess.Popen(
        [sys.executable, str(program), str(packed), str(delay_s)],
        env={"PYTHONPATH": str(project)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as store:
        yield store
        store.kill()
