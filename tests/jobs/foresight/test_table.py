"""`launch predict`: what it prints, and which tables it refuses."""

import json

import pytest

MEASURED = """\
series,gpus,gpus_per_node,rate,gradient_mb,batch_per_gpu,fabric
resnet50,1,4,335.7,102,64,ib
resnet50,4,4,979.1,102,64,ib
resnet50,32,4,6514.1,102,64,ib
resnet152,1,4,141.8,241,64,ib
"""
ASKED = "series,gpus,gpus_per_node\nresnet152,32,4\n"


@pytest.fixture
def ask(launching):
    """Type `launch predict` on two tables; return what it printed."""

    def typed(measured, asked=ASKED, *words):
        for name, text in (("m.csv", measured), ("a.csv", asked)):
            content = text if isinstance(text, bytes) else text.encode()
            (launching.folder / name).write_bytes(content)
        files = ("--measured", launching.folder / "m.csv", "--ask", launching.folder / "a.csv")
        return launching.type_bare("predict", *map(str, files), *words)

    return typed


def test_a_prediction_in_json(ask):
    typed = ask(MEASURED, ASKED, "--json")
    assert (typed.code, typed.err) == (0, "")
    [row] = json.loads(typed.out)
    assert 0.9 < row.pop("rate") / 2667.4 < 1.1  # the published rate
    assert row.pop("low") < 2667.4 < row.pop("high")
    assert row == {
        "series": "resnet152",
        "gpus": 32,
        "binds": "exchange between nodes",
        "why_wide": None,
    }


def test_a_table_for_people_says_why_a_band_is_wide(ask):
    typed = ask(MEASURED.replace("resnet50,32,4,6514.1,102,64,ib\n", ""))
    assert typed.code == 0
    header, row = (line.split() for line in typed.out.splitlines())
    assert header == ["SERIES", "GPUS", "RATE", "LOW", "HIGH", "BINDS"]
    assert row[:2] == ["resnet152", "32"]
    assert float(row[4]) > 1.5 * float(row[3])
    assert typed.err == (
        "wide band: no exchange between nodes was measured on this fabric (resnet152 32)\n"
    )


def test_a_large_network_on_slow_links_is_hardly_faster_than_one_gpu_and_answered(ask):
    """VGG over 10 Gb/s: 792 MB in 0.64 s more a step are 1.2 GB/s; by 0.1 GB/s it would be refused."""
    head = "series,gpus,gpus_per_node,rate,gradient_mb,batch_per_gpu\n"
    slow = head + "vgg,1,1,200,528,32\nvgg,2,1,150,528,32\nvgg,4,1,160,528,32\n"
    asked = "series,gpus,gpus_per_node\nvgg,8,1\n"
    typed = ask(slow, asked, "--json")
    assert typed.code == 0, typed.err
    [row] = json.loads(typed.out)
    assert 150 < row["rate"] < 450
    assert ask(slow.replace(",528,", ",50,"), asked).code == 2
    inside = slow.replace(",1,150,", ",4,150,").replace(",1,160,", ",4,160,")
    assert ask(inside, asked.replace("8,1", "8,4")).code == 2


LINE = "resnet50,4,4,979.1,102,64,ib"
OVERHEAD = """\
series,gpus,gpus_per_node,rate,batch_per_gpu,overhead_s
resnet50,1,4,335.7,64,20
resnet50,8,4,1800,64,20
"""
EACH = """\
series,gpus,gpus_per_node,rate
resnet50,4,4,98
resnet50,16,4,90
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("979.1", "-979.1", "line 3, column rate: '-979.1' is not a positive number"),
        ("979.1", "0", "line 3, column rate: '0' is not a positive number"),
        ("979.1", "nan", "line 3, column rate: 'nan' is not a positive number"),
        ("979.1", "1e999", "line 3, column rate: '1e999' is not a positive number"),
        ("102,64", "102,1e300", "line 2, column batch_per_gpu: '1e300' is not a positive number"),
        ("979.1", "", "line 3, column rate: '' is not a positive number"),
        ("979.1", "fast\x1b[2J", "line 3, column rate: 'fast?[2J' is not a positive number"),
        ("resnet50,4,", "resnet50,4.5,", "line 3, column gpus: '4.5' is not a whole number up to"),
        (
            "resnet50,4,",
            "resnet50,1e30,",
            "line 3, column gpus: '1e30' is not a positive number up",
        ),
        ("4,4,979.1", "4,0,979.1", "line 3, column gpus_per_node: '0' is not a positive number"),
        ("4,979.1,102", "4,979.1,-1", "line 3, column gradient_mb: '-1' is not a positive number"),
        ("resnet50,4,", ",4,", "line 3, column series: the cell is empty"),
        ("resnet50,4,", "\u202eresnet,4,", "line 3, column series: '?resnet' is too long or not"),
        (LINE, "resnet50,4,4,979.1", "line 3: 4 cells under 7 columns"),
        (",rate,", ",speed,", "line 1, column speed: the column is unknown"),
        (",fabric", ",rate", "line 1, column rate: the column is there twice"),
        (LINE, f"{LINE}\n{LINE.replace('979.1', '1200')}", "line 4, column rate: 'resnet50' has"),
        ("979.1", "335", "line 3, column rate: 4 GPUs have 0.998 times the rate of one GPU: it"),
        ("979.1", "9791", "line 3, column rate: 4 GPUs have 29.2 times the rate of one GPU: the"),
        ("979.1", "97.91", "line 3, column rate: 4 GPUs have 0.292 times the rate of one GPU: the"),
        ("979.1", "9_79.1", "line 3, column rate: '9_79.1' is not a positive number"),
        (
            "102,64",
            "1.02e8,64",
            "line 2, column gradient_mb: 1.02e+08 MB are more than any network",
        ),
        ("141.8,241", "141.8,2.41e8", "line 5, column gradient_mb: 2.41e+08 MB are more than any"),
        (
            "979.1,102",
            "979.1,25.6",
            "line 4, column gradient_mb: the series has gradients from 25.6",
        ),
        (",102,", ",102000,", "line 4, column gradient_mb: 102000 MB in steps of 0.314 s take"),
        (
            MEASURED,
            OVERHEAD,
            "line 2, column overhead_s: 20 s are more than a step of one GPU, 0.19",
        ),
        (MEASURED, EACH, "line 3, column rate: 16 GPUs have 90 and 4 have 98: it looks like the"),
        (MEASURED, MEASURED.replace(",", ";"), "line 1: the cells are separated by semicolons"),
        (LINE, f"{LINE}\nresnet50,1,1,200,102,64,ib", "line 4, column rate: 'resnet50' has rates"),
        (LINE, f'"{LINE}', "is not CSV"),
        (MEASURED, "", "line 1, column series: the column is missing"),
        (MEASURED, MEASURED.partition("\n")[0], "has no rows"),
    ],
)
def test_a_wrong_table_is_refused(ask, old, new, said):
    every = old == ",102,"
    typed = ask(MEASURED.replace(old, new, -1 if every else 1))
    assert (typed.code, typed.out) == (2, "")
    first, _, hint = typed.err.partition("\n\n")
    assert first.startswith("error: ")
    assert f"m.csv {said}".replace("m.csv line", "m.csv, line") in first
    assert hint.startswith("hint: ")


def test_a_rate_is_no_column_of_a_question(ask):
    typed = ask(MEASURED, "series,gpus,gpus_per_node,rate\nresnet152,32,4,1\n")
    assert typed.code == 2
    assert "a.csv, line 1, column rate: the column is unknown" in typed.err


def test_a_series_that_was_not_measured_is_refused(ask):
    typed = ask(MEASURED, "series,gpus,gpus_per_node\nvgg16,32,4\n")
    assert typed.code == 2
    assert "a.csv, line 2, column series: no rate of the series 'vgg16' was measured" in typed.err
    assert "hint: measured are: resnet152, resnet50" in typed.err


def test_a_series_of_two_fabrics_needs_the_fabric(ask):
    measured = f"{MEASURED}resnet50,8,4,1247,102,64,eth\n"
    typed = ask(measured, "series,gpus,gpus_per_node\nresnet50,16,4\n")
    assert typed.code == 2
    assert "a.csv, line 2, column fabric: the series 'resnet50' was measured on sev" in typed.err
    asked = "series,gpus,gpus_per_node,fabric\nresnet50,16,4,{}\n"
    rates = [
        json.loads(ask(measured, asked.format(name), "--json").out)[0]["rate"]
        for name in ("ib", "eth")
    ]
    assert rates[0] > rates[1]


def test_a_huge_file_and_bytes_that_are_no_text_are_refused(ask):
    typed = ask("x" * (5 << 20))
    assert (typed.code, "cannot be read" in typed.err) == (2, True)
    typed = ask(b"series,gpus\xff\n")
    assert (typed.code, "is not text in UTF-8" in typed.err) == (2, True)


def test_too_many_rows_are_refused(ask):
    typed = ask(MEASURED + "resnet50,2,4,668,102,64,ib\n" * 501)
    assert (typed.code, "the table is too long" in typed.err) == (2, True)


def test_rows_that_agree_count_once(ask):
    twice = MEASURED.replace(LINE, f"{LINE}\n{LINE}")
    assert ask(twice, ASKED, "--json").out == ask(MEASURED, ASKED, "--json").out


def test_a_mark_of_the_byte_order_and_empty_lines_are_no_mistake(ask):
    odd = ("\ufeff" + MEASURED.replace("\n", "\r\n\r\n")).encode()
    assert ask(odd, ASKED, "--json").out == ask(MEASURED, ASKED, "--json").out


def test_a_question_in_other_units_than_the_measured_rows_is_refused(ask):
    asked = "series,gpus,gpus_per_node,gradient_mb\nresnet152,32,4,{}\n"
    typed = ask(MEASURED, asked.format("241000"))
    assert (typed.code, typed.out) == (2, "")
    assert "a.csv, line 2, column gradient_mb: 241000 MB, where 241 MB were measured" in typed.err
    assert ask(MEASURED, asked.format("120")).code == 0


def test_names_of_columns_may_have_capitals(ask):
    odd = MEASURED.replace("series,gpus,gpus_per_node", "Series, GPUs ,GPUs_per_node", 1)
    assert ask(odd, ASKED, "--json").out == ask(MEASURED, ASKED, "--json").out


def test_rates_of_one_gpu_on_two_fabrics_and_with_two_batches_are_no_mistake(ask):
    more = "resnet50,1,4,300,102,64,\nresnet50,1,4,120,102,8,ib\n"
    typed = ask(
        MEASURED + more, "series,gpus,gpus_per_node\nresnet50,4,4\nresnet50,1,4\n", "--json"
    )
    assert [row["rate"] for row in json.loads(typed.out)] == [
        pytest.approx(979.1),
        pytest.approx(335.7),
    ]
