"""Run the benchmarks and write docs/benchmarks: `python -m tests.bench [--page NAME | --only NAME]`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.azure_submits import submit_rows
from tests.bench.beside import exec_rows, stacks_rows
from tests.bench.elsewhere import elsewhere_rows
from tests.bench.extraction import extraction_rows
from tests.bench.first_step import first_step_rows
from tests.bench.foresight import foresight_rows
from tests.bench.launches import launch_rows
from tests.bench.listing import listing_rows
from tests.bench.loader import loader_rows
from tests.bench.log_latency import latency_rows
from tests.bench.mnist import mnist_rows, scaling_rows, tax_rows
from tests.bench.packing import packing_rows
from tests.bench.previews import preview_rows
from tests.bench.resnet import resnet_rows, transfer_rows
from tests.bench.starts import start_rows
from tests.bench.streams import stream_rows
from tests.bench.table import Row, replace_table, table_text
from tests.bench.tf_rates import tensorflow_rows
from tests.bench.throttled import throttled_rows
from tests.bench.transfers import push_rows
from tests.bench.ui import chart_rows, import_rows, line_rows, list_rows
from tests.bench.up import up_rows

PROJECT = Path(__file__).resolve().parents[2]
# Takes the project and the number of rounds.
Benchmark = Callable[[Path, int], list[Row]]


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of docs/benchmarks and what fills it."""

    title: str
    benchmarks: dict[str, Benchmark]
    notes: tuple[str, ...]


PAGES = {
    "one-machine": Page(
        title="One machine: starts, launches, listing, no-op `pulumi up`",
        benchmarks={
            "starts": start_rows,
            "launches": launch_rows,
            "listing": listing_rows,
            "up": up_rows,
        },
        notes=(
            "- `launch --help` and `launch ls`: CPU seconds (user and system) of the whole process; the "
            "ratio is the median of the rounds'.",
            "- Launch overhead: wall time of the whole command less that of two bare processes "
            "which do the same imports at the same time, in the same round. `launch run` stays "
            "attached to the end. The peer `horovodrun` runs in a network namespace of its own.",
            "- `launch ls`: wall time with 10,000 runs in the store against 10.",
            "- No-op `pulumi up`: the local stack against a Python stack that declares nothing, "
            "both on a file backend.",
        ),
    ),
    "training": Page(
        title="Training: steps, ranks, transfer learning",
        benchmarks={
            "first_step": first_step_rows,
            "mnist": mnist_rows,
            "tax": tax_rows,
            "scaling": scaling_rows,
            "resnet50": resnet_rows,
            "transfer": transfer_rows,
            "tensorflow": tensorflow_rows,
        },
        notes=(
            "- First step: CPU seconds (user and system) of the whole process, which ends there; the "
            "bare script imports torch, and torchvision where it takes the network from it, and "
            "makes the same data, network, optimizer and step. The ratio is the median of the rounds'.",
            "- MNIST: 10,000 made pictures, under torchrun. The peer reads each picture by itself "
            "(PIL, ToTensor, Normalize), as PyTorch's examples do; both leave the warm-up out.",
            "- Steps under Horovod and with agreement: steps of both kinds in turn in one process.",
            "- Efficiency: the peer is two processes that train side by side and never talk, so "
            "what two cores cost each other is in both.",
            "- bf16 where the CPU has instructions for it (Linux names them in /proc/cpuinfo), else fp32; "
            "the peers compute in fp32, as they are.",
            "- ResNet-50: one process on all cores. The peer does what Horovod's "
            "`pytorch_synthetic_benchmark.py` does; both leave ten steps out and count ten.",
            "- Transfer learning: wall time of the whole programs, imports included. Ours runs "
            "each picture through the backbone once, without augmentation; the peer does what "
            "PyTorch's tutorial does, in every epoch.",
            "- TensorFlow: one process of Horovod on all cores. The peer does what "
            "Horovod's `tensorflow2_synthetic_benchmark.py` does, which itself does not run with "
            "Keras 3; both leave ten steps out and count twenty.",
            "- Keras: the loop and `fit` train epochs of four steps in turn (A B B A) in one process a "
            "rank, on one core a rank; the ratio is the median of the pairs'.",
        ),
    ),
    "data": Page(
        title="Data: preparing, packing and pushing",
        benchmarks={
            "extraction": extraction_rows,
            "packing": packing_rows,
            "loader": loader_rows,
            "pushes": push_rows,
            "streams": stream_rows,
        },
        notes=(
            "- Packing: wall time of the whole program, with the files in the page cache; nobody "
            "waits for the disk. The peer of TFRecord does what the usual script for ImageNet "
            "does; its imports and listing are left out, ours are not.",
            "- Loaders: batches of 64 random crops of 224 x 224 bytes, three passes, without the first "
            "batch; the peers decode and crop with Pillow and torchvision, as their examples do. "
            "Decoding alone is simplejpeg on two threads, from memory.",
            "- Pushes: wall time of the whole command, its start, its reading and hashing of the "
            "files and its listing included, to an empty store each time. The store is a sink on "
            "a core of its own that drops what it gets; in U1, U2, U4, U5 and growth the client "
            "has the other core alone, in U3 both are the client's as well.",
            "- Ours finds SHA-256 and MD5 of each file before it goes, and has the store check the "
            "MD5 of each request. azcopy does neither by itself; with `--put-md5` it finds an MD5.",
            "- Bare sockets: the same files read and sent over eight connections by a loop in "
            "Python, without signature, hash or a look at the answers.",
            "- Shards (U4): files of 128 MiB and one with the rest.",
            "- Growth: files of 4 kB; the time of a push of one file is taken off.",
            "- Streams: an epoch of 24 shards of 17 MB, so a window of 8 is a third of it; two ranks "
            "in step take 10 ms a sample each. The first four batches are left out. The store is a "
            "thread of Python beside them on the same cores.",
        ),
    ),
    "azure": Page(
        title="Azure ML: what a submit and a plan cost, and how soon a line is shown",
        benchmarks={"submits": submit_rows, "latency": latency_rows},
        notes=(
            "- Submits: CPU seconds of the whole process, against the stand-in Azure "
            "(tests/fakes/azureml), of a folder that is there already. Requests are those to Azure "
            "ML and its stores, without those for prices and quotas, which azure-ai-ml does not look "
            "at, and without logins: after `az login` those are the CLI's. A service principal "
            "sends 3 (one discovery, a token each for Azure ML and for the store, which holds the "
            "record of each run), and 2 for azure-ai-ml, which records none.",
            "- The peer's job has the same 21 files and is described in YAML.",
            "- Plans: wall time. The stack holds nothing but its output, on a file backend.",
            "- Lines: one job of six minutes on two nodes, a line a second on each, followed by "
            "`launch logs -f` and by the peer at the same time, at a stand-in whose stores give out "
            "an account key, without which the peer reads no logs. These two rows are of that one "
            "job's lines, and no medians.",
        ),
    ),
    "foresight": Page(
        title="Foresight against published rates",
        benchmarks={
            "foresight": foresight_rows,
            "elsewhere": elsewhere_rows,
            "throttled": throttled_rows,
        },
        notes=(
            "- `ratio` is the part of the rates that are predicted within 10 %, or that their band "
            "holds; for widths the median high / low.",
            "- A choice is three rows a fabric, beside the rows of one GPU: `CHOICES` of "
            "tests/bench/foresight.py. They were picked from some 150 random ones (see "
            "docs/foresight.md), and the constants' priors were set while looking at this table. The goals "
            "are those of the best choice; none may be far below.",
            "- Random rows: 12 times three rows of several GPUs, drawn for each fabric of each table of "
            "tests/bench/published_elsewhere.csv and of this one without K80; tests/bench/elsewhere.py names "
            "sources and dates, and which tables the model had not seen.",
            "- Throttled links: ranks of DDP over Gloo in network namespaces behind token buckets, each "
            "layer paced as on a device of a sixth of a core's speed; measured by `python -m "
            "tests.bench.throttled` into tests/bench/throttled_links.csv (2 cores of AMD EPYC, "
            "2026-11-23), predicted from the rates of one rank and three of a probe.",
            "- Left out: three rows that are wrong in the source (ResNet-152 over RDMA at 16 GPUs on "
            "P40, P100, V100), and the K80 over Ethernet.",
        ),
    ),
    "ui": Page(
        title="Pages in the browser, stacks, `exec` and `import trainyard`",
        benchmarks={
            "ui-lines": line_rows,
            "ui-list": list_rows,
            "ui-charts": chart_rows,
            "exec": exec_rows,
            "stacks": stacks_rows,
            "import": import_rows,
        },
        notes=(
            "- A process of `launch ui` and Debian's chromium without a window, on the same "
            "processors as the job that writes; a ratio to a goal is ours divided by the goal.",
            "- Lines: one job writes 4,000 of them; each holds the time at which it was printed, "
            "and the page records when it was shown. Lines from before the page was open are left "
            "out. Beside the page a client disconnects after each of its first 50 events and "
            "connects again with the last event's id; it, too, begins with a log's last lines.",
            "- Lists: from the navigation's start to the end of its load event, with a server "
            "that has printed its address before the browser was started, as `launch ui` starts it; a "
            "page shows 100 of the runs.",
            "- Charts: a file of 10,000,000 lines. Until all of it has been read, curves show "
            "samples from the whole file; the memory is the server's peak up to then.",
            "- `exec`: a step of a fixed loop in Python, in turn alone, with a busy loop by `launch "
            "exec`, and with one under `nice`: what a second busy processor costs by itself. "
            "`stacks` is the wall time of the whole command.",
        ),
    ),
    "previews": Page(
        title="Previews of a stack on Azure",
        benchmarks={"previews": preview_rows},
        notes=(
            "- Wall time of the whole command: real Pulumi, real SDK, and the stand-in of the tests "
            "(tests/fakes/azure_native) in place of the provider, which asks Azure nothing in a "
            "preview but who is logged in. All stacks on a file backend.",
            "- The empty stack declares nothing and starts no provider.",
            "- Where a preview of dev spends what the empty stack does not, by the clock in one run "
            "(2026-11-21, a busier machine): 0.30 s imports of the SDK's packages that dev uses "
            "(machinelearningservices alone 0.27 s), 0.28 s the stand-in's start and its first "
            "answer, which waits for those imports, 0.57 s for 49 registrations, 0.1 to 0.3 s the "
            "engine's end.",
            "- Processor time (`time.process_time` in the program, 2026-11-23, AMD EPYC): `import "
            "pulumi` 0.21 s, as in the empty stack; the SDK's packages 0.55 s; declaring the rest "
            "0.25 s; the settings 0.01 s. The whole command takes 2.4 s of it, the empty one's 1.0 s.",
            "- Tried: `infra.cloud.platform` imported in a thread while the provider starts and "
            "answers. Seven previews each in turn, on two cores that eight others used: 7.09 s with "
            "it, 6.84 s without, 3.55 s the empty stack: nothing is gained where processors are "
            "short, 0.28 s at most where they idle, and 1.50 takes 0.76 s less. It was left out.",
        ),
    ),
}


def main() -> int:
    """Measure, print each page's table, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", choices=sorted(PAGES), action="append")
    names = sorted(name for page in PAGES.values() for name in page.benchmarks)
    parser.add_argument("--only", choices=names, action="append", help="prints, writes nothing")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    # A shell ignores it for what it starts by `&`. Pulumi would wait 5 s for its Python host, which it ends by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in options.page or PAGES:
        page = PAGES[name]
        wanted = [each for each in page.benchmarks if each in (options.only or page.benchmarks)]
        rows: list[Row] = []
        for each in wanted:
            print(f"{each}:", file=sys.stderr)
            rows += page.benchmarks[each](PROJECT, options.rounds)
        if rows:
            command = f"python -m tests.bench --page {name} --rounds {options.rounds}"
            text = table_text(page.title, command, rows, page.notes)
            print(text)
            if not options.only:
                replace_table(PROJECT / "docs/benchmarks" / f"{name}.md", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
