"""args as words, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.contracts.errors import LaunchError
from jobs.jobfile.arguments import python_program, require_all_words, split_argv, to_argv


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, ()),
        (
            {"epochs": 3, "lr": 0.1, "name": "a b"},
            ("--epochs", "3", "--lr", "0.1", "--name", "a b"),
        ),
        ({"amp": True, "fast": False, "seed": None, "sizes": []}, ("--amp",)),
        ({"sizes": [8, 16]}, ("--sizes", "8", "16")),
        ({"shift": -1.5}, ("--shift", "-1.5")),
        ({"flags": "--x -y"}, ("--flags=--x -y",)),
        ({"note": ""}, ("--note", "")),
        (("train", "--lr", 0.1, 3, "-x"), ("train", "--lr", "0.1", "3", "-x")),
    ],
)
def test_args_become_options(args, words):
    assert to_argv(args) == words


@pytest.mark.parametrize(
    ("argv", "command", "args"),
    [
        (("python", "-m", "a.b", "--epochs", "3", "--amp"), 3, {"epochs": "3", "amp": True}),
        (("python", "train.py"), 2, {}),
        (("python", "train.py", "--sizes", "1", "2"), 2, {"sizes": ["1", "2"]}),
        (("bash", "-c", "echo --x 1"), 3, {}),
        # Nothing that we would have written: it is all the command's own.
        (("tool", "--x", "1", "--x", "2"), 3, {"x": "2"}),
        (("tool", "--", "file"), 3, {}),
        (("tool", "--x=1"), 2, {}),
    ],
)
def test_a_command_line_is_split_where_its_args_begin(argv, command, args):
    assert split_argv(argv) == (argv[:command], args)


FOUND = {"lr": ["0.1", "/my data"], "pretrained": "/data", "note": "-x", "amp": True}
ANEW = "--set 'args=[WORD, ...]' gives all words anew"


@pytest.mark.parametrize(
    ("changes", "says", "hint"),
    [
        (
            {"lr": "0.2"},
            "`--set args.lr=0.2` drops `'/my data'`, which may be no value of `--lr`",
            """--set 'args.lr=["0.2", "/my data"]' keeps it, --set 'args.lr=["0.2"]' does not""",
        ),
        (
            {"lr": None},
            "`--set args.lr=null` drops `0.1 '/my data'`, which may be no value of `--lr`",
            f"--set 'args.lr=[]' drops the option and its words; {ANEW}",
        ),
        (
            {"pretrained": False},
            "`--set args.pretrained=false` drops `/data`, which may be no value of `--pretrained`",
            f"--set 'args.pretrained=[]' drops the option and its words; {ANEW}",
        ),
        (
            {"pretrained": True},
            "`--set args.pretrained=true` drops `/data`, which may be no value of `--pretrained`",
            ANEW,
        ),
    ],
)
def test_words_that_may_be_positional_are_not_dropped_unsaid(changes, says, hint):
    with pytest.raises(LaunchError) as caught:
        require_all_words(FOUND, {**FOUND, **changes})
    assert (caught.value.message, caught.value.hint) == (says, hint)


@pytest.mark.parametrize(
    "args",
    [
        FOUND,
        {**FOUND, "lr": ["0.2", "/my data"], "pretrained": []},
        {**FOUND, "lr": ["0.2"], "pretrained": "/other", "note": False, "amp": False, "new": 1},
        {"lr": ["0.3"]},
        ["--lr", "0.2"],
    ],
)
def test_what_drops_no_word_or_lists_all_is_taken(args):
    require_all_words(FOUND, args)


@pytest.mark.parametrize(
    ("argv", "count"),
    [
        (("python", "train.py", "3", "1"), 2),
        (("python", "-m", "a.b", "3"), 3),
        (("python", "-c", "print()", "3"), None),
        (("python", "-u", "train.py"), None),
        (("tool", "3"), None),
        (("python",), None),
        (("python", "-m"), None),
    ],
)
def test_the_words_that_start_a_python_program_are_found(argv, count):
    assert python_program(argv) == (None if count is None else argv[:count])


KEYS = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
VALUES = st.one_of(
    st.just(True),
    st.text(max_size=8),
    st.lists(st.from_regex(r"[a-z0-9.]{1,5}", fullmatch=True), min_size=2, max_size=3),
)


@given(args=st.dictionaries(KEYS, VALUES, max_size=4))
def test_splitting_gives_back_what_was_put_together(args):
    command = ("python", "-m", "program")
    assert split_argv((*command, *to_argv(args))) == (command, args)
