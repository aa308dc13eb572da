"""Promises about trainers, checkpoints and predicted rates."""

from __future__ import annotations

from fractions import Fraction
from math import exp
from statistics import NormalDist

from jobs.commands import bench as bench_verb
from jobs.contracts.errors import ExitCode
from jobs.foresight import azure, calibrate, check, model, one_gpu, predict, series, table, why
from jobs.foresight.work import Band
from jobs.launching import bench, bench_run, foresee, layout, links, shared_runs, speeds
from jobs.runs import scaling, steady
from tests.documents.promises.sentences import NoPromise, Promise, option, promise
from tests.documents.promises.units import constant, mib, percent, spelled, written_in
from trainer.common import bandwidth, manifest, preemption, profiling, schedule
from trainer.common.find_batch import PARTS
from trainer.common.model_options import ModelOptions
from trainer.common.resnet_options import LR_BATCH, MOST_WARMUP, WARMUP_EPOCHS, ResnetOptions
from trainer.common.sharding import WINDOW_SHARDS
from trainer.common.training_options import TrainingOptions
from trainer.data.pictures import coco, crops, header, predicted
from trainer.data.streaming import blocks
from trainer.data.synthesize import digits

CLASSIFIER = "trainer/pytorch/classifier.py"
MASKRCNN = "trainer/pytorch/maskrcnn.py"
HYMENOPTERA = "trainer/pytorch/hymenoptera.py"
MODEL = "trainer/pytorch/maskrcnn_model.py"
PROCESSES = "trainer/data/pictures/decoding_processes.py"
NCCL = "trainer/pytorch/nccl_check.py"
MEGABYTE = 10**6
WARMUP = (WARMUP_EPOCHS, {1 / 4: "quarter"}[MOST_WARMUP])


def _of_maskrcnn(name: str) -> object:
    return constant(MASKRCNN, name, of="Options")


def _usual_rates() -> tuple[float, float]:
    """Give the rates of SGD and of the others, which are equal, where none is given."""
    of_sgd, *others = constant(CLASSIFIER, "USUAL_LR").values()
    (of_others,) = set(others)
    assert of_sgd == ResnetOptions.lr
    return of_sgd, of_others


def _maskrcnns_warmup() -> str:
    """Name the share of all steps that its warm-up takes at most."""
    (parts,) = written_in(MASKRCNN, r"min\(self\.options\.warmup_steps, self\.num_steps // (\d+)\)")
    return {"4": "quarter"}[parts]


def _longest_of_three() -> int:
    """Give the longest side of its pictures where the shorter one is three."""
    shorter, longest = (constant(MODEL, f"USUAL_{name}SIZE") for name in ("", "LONG_"))
    return round(3 * longest / shorter)


def _steps_left_out() -> int:
    """Give the most steps that the rate of its pictures leaves out."""
    (steps,) = written_in(MASKRCNN, r"return min\((\d+), self\.num_steps // 2\)")
    return int(steps)


def _frozen_layers() -> tuple[str, str]:
    """Count its backbone's layers that do not learn where that is pretrained, and all of them."""
    learning, layers = map(
        int, written_in(MODEL, r"trainable_layers=(\d) if is_pretrained else (\d)")
    )
    return spelled(layers - learning), spelled(layers)


def _of_recipe(name: str, option: str) -> str:
    words = constant(CLASSIFIER, "RECIPES")[name]
    return words[words.index(option) + 1]


def _maskrcnns_steps() -> tuple[int, ...]:
    """Give the epochs after which its rate falls, and all of them."""
    epochs = constant(MASKRCNN, "epochs", of="Options")
    return (*(round(share * epochs) for share in constant(MASKRCNN, "STEPS_AT")), epochs)


USUAL_LR = _usual_rates()
MASKRCNN_STEPS = _maskrcnns_steps()
MASKRCNN_WARMUP = _maskrcnns_warmup()
LONGEST_OF_THREE = _longest_of_three()


def short(number: float) -> str:
    """Write a small number as 1e-4."""
    return f"{number:.0e}".replace("e-0", "e-")


def _middle_and_factor(place: int, unit: float = 1.0) -> tuple[str, str]:
    """Give two digits of a prior's middle and of its factor for one standard deviation."""
    middle, deviation = model.PRIOR[place]
    return f"{exp(middle) / unit:.2g}", f"{exp(deviation):.2g}"


def _overlaps() -> list[str]:
    middle, deviation = model.PRIOR[3]
    return [f"{1 / (1 + exp(-middle - way * deviation)):.2g}" for way in (0, -1, 1)]


def _cases() -> tuple[tuple[int, int], tuple[int, int]]:
    """Give the cases of which a band holds so many, and those in which its upper end is kept."""
    low, high = written_in("jobs/foresight/predict.py", r"\((0\.\d+), 0\.5, (0\.\d+)\)\)")
    kept = NormalDist().cdf(predict.NINE_OF_TEN)
    assert round(kept, 3) == float(high) == 1 - float(low)
    ratios = [Fraction(each).limit_denominator(20) for each in (2 * kept - 1, kept)]
    return ratios[0].as_integer_ratio(), ratios[1].as_integer_ratio()


def _most_warm_up() -> str:
    """Name the share that is left out of rates of which each is far nearer to the end's."""
    rates = [2.0**-number for number in range(80)]
    return {1 / 2: "half"}[steady._end_of_warm_up(rates) / len(rates)]


IN_BAND, BELOW_ITS_END = _cases()


def _start(band: Band, unit_s: float) -> list[float]:
    return [each / unit_s for each in (band.middle, band.low, band.high)]


PROMISES: dict[str, tuple[Promise, ...]] = {
    "docs/checkpoints.md": (
        promise("and leave with exit code {} |", preemption.EXIT_CODE),
        option("--keep-last K", TrainingOptions.keep_last),
        promise("| `--on-checkpoint-error` | `{}` |", TrainingOptions.on_checkpoint_error),
        promise("`manifest.json` has `format` ({}),", manifest.FORMAT),
        promise("and are {} minutes away or less", spelled(preemption.LEAVE_BEFORE.seconds / 60)),
    ),
    "docs/debugging.md": (
        promise("after a warm-up of {} steps,", profiling.NUM_WARMUP),
        promise("a table of the {} slowest kernels", spelled(profiling.NUM_KERNELS)),
    ),
    "docs/own-model.md": (
        promise("`--lr` is {} by default for `sgd`, {} for `adamw` and `lamb`.", *USUAL_LR),
        promise("warm-up of `--warmup-epochs`: {} and at most a {} of the epochs", *WARMUP),
        promise("`--lr` is for {} pictures a step", LR_BATCH),
        promise("that it trains at, of the middle {} |", Fraction(crops.CENTER)),
        promise("RandAugment at {} pixels", _of_recipe("a3", "--image-size")),
        promise("the largest one or from {} on at most {} % less", 2 * PARTS, round(100 / PARTS)),
    ),
    "docs/training-resnet50.md": (
        promise("larger than {} million pixels", header.MOST_PIXELS // MEGABYTE),
        promise("more than `--max-corrupt` of them ({} by default)", ModelOptions.max_corrupt),
        promise("up to {} are threads, more", spelled(constant(PROCESSES, "MOST_THREADS"))),
        promise("({} to {} % of the area,", *map(percent, crops.AREA)),
        promise("the middle {} of the shorter side", Fraction(crops.CENTER)),
        promise("come in a random order, {} at a time", spelled(WINDOW_SHARDS)),
        promise("| `--lr` | {} for {} pictures a step", ResnetOptions.lr, LR_BATCH),
        promise("({} with `--optimizer adamw` or `lamb`)", USUAL_LR[1]),
        promise(
            "| `--warmup-epochs` | not given: {}, at most a {} of the epochs; linear",
            *WARMUP,
        ),
        promise(
            "| `--schedule` | `{}`: a tenth after {}, {} and {} of the epochs",
            ResnetOptions.schedule,
            *(Fraction(each).limit_denominator(90) for each in schedule.STEPS_AT),
        ),
        promise(
            "| `--momentum`, `--weight-decay` | {}, {};",
            *(ResnetOptions.momentum, short(ResnetOptions.weight_decay)),
        ),
        option("--label-smoothing", ResnetOptions.label_smoothing),
        promise("| the first {} pictures with class", predicted.NUM_DRAWN),
        promise("`probability_2`, ... of the {} surest", spelled(predicted.NUM_NAMED)),
        promise("shows {} validation pictures with", spelled(constant(HYMENOPTERA, "NUM_SHOWN"))),
        promise("makes them grey and {} x {}", digits.SIDE, digits.SIDE),
    ),
    "docs/training-maskrcnn.md": (
        promise("with a side below {} pixel, are", Fraction(coco.LEAST_SIDE)),
        promise(
            "at least {} % sure",
            percent(constant("trainer/pytorch/maskrcnn_picture.py", "LEAST_SCORE")),
        ),
        promise(
            "makes {} pictures of discs, boxes and triangles for training and {} for validation",
            constant("trainer/pytorch/maskrcnn_loading.py", "NUM_SYNTHETIC_TRAIN"),
            constant("trainer/pytorch/maskrcnn_loading.py", "NUM_SYNTHETIC_VAL"),
        ),
        option("--batch-per-rank", _of_maskrcnn("batch_per_rank")),
        promise(
            "| `--lr` | {} | for {} pictures a step",
            _of_maskrcnn("lr"),
            constant(MASKRCNN, "LR_BATCH"),
        ),
        promise(
            "| `--warmup-steps` | {} | at most a {} of all steps",
            *(_of_maskrcnn("warmup_steps"), MASKRCNN_WARMUP),
        ),
        promise(
            "| `--momentum`, `--weight-decay` | {}, {} | of SGD",
            *(_of_maskrcnn("momentum"), short(_of_maskrcnn("weight_decay"))),
        ),
        promise("the longer is at most {}/3 of it.", LONGEST_OF_THREE),
        option("--max-corrupt", ModelOptions.max_corrupt),
        promise("| `--schedule` | `{}` | a tenth", _of_maskrcnn("schedule")),
        promise(
            "a tenth after {} and {} of {} epochs",
            *MASKRCNN_STEPS,
        ),
        promise("| `--epochs`, `--max-steps` | {}, none |", _of_maskrcnn("epochs")),
        promise(
            "| `--precision` | `{}` | `bf16`",
            constant("trainer/pytorch/program.py", "precision", of="TorchOptions"),
        ),
        promise("| `--backbone` | `{}` |", _of_maskrcnn("backbone")),
        option("--image-size", _of_maskrcnn("image_size")),
        option("--regions-per-image", _of_maskrcnn("regions_per_image")),
        promise("ranks together, the first {} steps left out", spelled(_steps_left_out())),
        promise("| frozen; the first {} of {} layers too", *_frozen_layers()),
    ),
    "trainer/common/resnet_options.py": (
        promise("peak learning rate for {} pictures a step", LR_BATCH),
        promise(
            "(default: {}, at most a {} of --epochs)",
            *WARMUP,
        ),
    ),
    CLASSIFIER: (
        promise(
            "for {} pictures a step (default: {} for sgd, {} for adamw and lamb)",
            *(LR_BATCH, *USUAL_LR),
        ),
    ),
    MASKRCNN: (
        promise("rate for {} pictures a step over all ranks", constant(MASKRCNN, "LR_BATCH")),
        promise("(at most a {} of all steps)", MASKRCNN_WARMUP),
        promise("(else at {} and {} of {})", *MASKRCNN_STEPS),
    ),
    HYMENOPTERA: (promise("rate for {} pictures a step", constant(HYMENOPTERA, "LR_BATCH")),),
    NCCL: (
        promise(
            "message in MiB (default: {} on GPUs, else {})",
            *(mib(bandwidth.GIB), mib(constant(NCCL, "MOST_ON_CPU"))),
        ),
    ),
    "launch predict --help": (promise("a band that holds it in {} of {} cases", *IN_BAND),),
    "docs/foresight.md": (
        promise("meant to hold the rate in {} of {} cases", *IN_BAND),
        promise("the limit is kept in {} of {} cases", *BELOW_ITS_END),
        promise("the band of the time holds those of {} of {} cases", *BELOW_ITS_END),
        promise(
            "the constants from {} starts",
            spelled(len(calibrate._starts([0.0] * len(model.PRIOR)))),
        ),
        promise("(the {} newest that give `parameters`", spelled(links.MOST_JOBS)),
        promise("Its band is {} to {} of it", *{2.0: ("half", "twice")}[one_gpu.OFF_BY]),
        promise("left out of the beginning, at most {}: the rest", _most_warm_up()),
        promise("rate was steady for `--measure` ({} s)", bench_verb.MEASURE_S),
        promise("a warm-up of {} s and the time that is measured", bench.WARM_UP_S),
        promise("is ended after {} times that, which the question", bench_run.MOST_TIMES),
        promise("takes what they answer within {} s", shared_runs.SOON_S),
        promise("asked again after {} minutes", shared_runs.FRESH_S / 60),
        promise("Every number of nodes up to {} is tried", layout.MOST_TRIED),
        promise("low, high | {} % interval of that median", percent(steady.CONFIDENCE)),
        promise("At least {} windows, at most {}", steady.LEAST_WINDOWS, steady.MOST_WINDOWS),
        promise("the windows vary by more than {} %", percent(steady.NOISY)),
        promise(
            "less or more than {} to {} % are said",
            percent(1 - scaling.ADD_UP),
            percent(1 + scaling.ADD_UP),
        ),
        promise("Without it {}, and a wide band | | `batch", series.USUAL_GRADIENT_MB),
        promise("samples of one GPU in a step. Without it {}, and", series.USUAL_BATCH),
        promise("its corner rounded over {} % of t1", percent(model.SOFTNESS)),
        promise("as far as {} requests were on at once", spelled(blocks.NUM_FETCHERS)),
        promise("slowest link of the ring | {} ms, {} |", *_middle_and_factor(0, 1e-3)),
        promise("however little it moves | {} ms, {} |", *_middle_and_factor(1, 1e-3)),
        promise("no computing hides its exchange | {}, {} |", *_middle_and_factor(6)),
        promise("The {} constants belong", spelled(len(model.PRIOR))),
        promise("slow as its slowest link | {}, {} |", *_middle_and_factor(2)),
        promise("as a multiple of `level` | {}, {} |", *_middle_and_factor(7)),
        promise("hides the exchange | {}, between {} and {} |", *_overlaps()),
        promise("waiting for the slowest | {} %, {} |", *_middle_and_factor(4, 0.01)),
        promise("each doubling of the nodes | {} %, {} |", *_middle_and_factor(5, 0.01)),
        promise("may also differ by some {} % in its gradient", percent(series.GIVEN)),
        promise("in its gradient and {} % in its step", percent(series.ONE_GPU)),
        promise("The noise of a rate is taken as {} %", percent(calibrate.NOISE)),
        promise("{} % more for each doubling of the GPUs", percent(predict.FARTHER)),
        promise("and {} % more for a series none", percent(predict.OTHER_SERIES)),
        promise("it exchanges over {} times as much", why.BEYOND),
        promise("has steps over {} times as short", why.SHORTER),
        promise("or over {} times the GPUs", why.FARTHER),
        promise("is more than {} % off what the others tell", percent(why.MISFIT)),
        promise("The band is at least {} wide", predict.LEAST_WIDE),
        promise("one size that differ by more than {} %", percent(table.MOST_APART - 1)),
        promise("{} GPUs or more that are hardly faster", spelled(check.FEW)),
        promise("more than {} times the rate of one GPU", check.MOST_EFFICIENCY),
        promise("of more than {} million MB", check.MOST_GRADIENT_MB / 1e6),
        promise("would take {} GB/s inside a node", check.INSIDE_GB_PER_S),
        promise("would explain it by {} GB/s or more", check.SLOWEST_GB_PER_S),
        promise("inside a node or {} between nodes", check.ACROSS_GB_PER_S),
        promise("of one series that differ by more than {} %", percent(check.ONE_NETWORK - 1)),
        promise("question that is {} times off", spelled(int(check.WHAT_IF))),
        promise("ends with code {} and names the nearest", int(ExitCode.REFUSED)),
        promise("{} times the shortest to {} times", foresee.START_LOW, foresee.START_HIGH),
        promise("Never measured: {} s ({} to {}) here", *_start(foresee.LOCAL_START_S, 1)),
        promise("here, {} min ({} to {}) on Azure", *_start(foresee.CLOUD_START_S, 60)),
        promise("| store | {} Gb/s and", azure.STORE_BYTES_PER_S * 8 / 1e9),
        promise("Gb/s and {} requests/s", azure.STORE_REQUESTS_PER_S),
        promise("| evictions | {} an hour and node", azure.EVICTIONS_PER_NODE_HOUR),
        promise("one run to the next: {} %", percent(speeds.NOISE)),
        promise("without GPUs {} %, more where", percent(speeds.CPU_NOISE)),
        promise("number of processes to the power {} (", speeds.SHARING),
        promise("standard deviation {}), until", speeds.SHARING_SPREAD),
    ),
}

_MEASURED = "a measurement, with its machine and date"
NO_PROMISES: dict[str, tuple[NoPromise, ...]] = {
    "docs/checkpoints.md": (
        NoPromise(r"about three times its size", "an estimate"),
        NoPromise(
            r"ResNet-50 with momentum has about 200 MB", "of the network: 25.6 million x 8 bytes"
        ),
        NoPromise(
            r"announce `Preempt` at least 30 s .*?`Terminate` 5 to 15 min", "Azure's documents"
        ),
        NoPromise(r"announced a week ahead", "Azure's documents"),
        NoPromise(r"its answer takes up to two minutes", "Azure's documents"),
    ),
    "docs/debugging.md": (NoPromise(r"port 6006", "TensorBoard's own"),),
    "docs/own-model.md": (
        NoPromise(r"a norm of 1 by default in \[timm's LAMB\]", "of timm"),
        NoPromise(r"from the rate for 256 pictures, 0\.1", "of the paper"),
        NoPromise(r"at 224 pixels, of the middle 0\.95", "of timm"),
    ),
    "docs/foresight.md": (
        NoPromise(r"4 bytes a parameter in fp32", "of fp32"),
        NoPromise(r"\$ launch bench train\.yaml.*?scaling\.svg", "an example"),
        NoPromise(r"compute some 4,000 steps in 39 ms.*?158 rows 2\.5 s", _MEASURED),
        NoPromise(r"## Against published rates .*?## The forecast of a job", _MEASURED),
        NoPromise(r"Here the runs before are the published rates.*?is 3405\.", "an example"),
        NoPromise(r"With 16 processes waiting .*?55 s of 48 to 95 foreseen", _MEASURED),
    ),
    "docs/training-maskrcnn.md": (
        NoPromise(r"Anchors stay 32 to 512 pixels", "torchvision's"),
        NoPromise(r"took that rank 8\.1 s of CPU time.*?about ten times that", _MEASURED),
        NoPromise(r"training set \(50 MB", _MEASURED),
    ),
    "docs/training-resnet50.md": (
        NoPromise(r"1\.28 million pictures open in half a second", _MEASURED),
        NoPromise(r"differ by 1 of 255 at most", "measured: trainer's decoders, ADR 12"),
        NoPromise(r"of more than five classes", "top-5 of five classes says nothing"),
    ),
}
