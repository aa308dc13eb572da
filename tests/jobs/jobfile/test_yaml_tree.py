"""YAML with places: scalars of YAML 1.2, mistakes where they stand, overrides."""

import pytest

from jobs.contracts.errors import LaunchError
from jobs.jobfile.yaml_tree import (
    MOST_DEPTH,
    MOST_VALUES,
    parse_override,
    parse_yaml,
    plain_scalar,
    with_joined_surrogates,
    with_override,
)


def plain(node):
    if isinstance(node.value, dict):
        return {key: plain(entry.node) for key, entry in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("3", 3),
        ("-3", -3),
        ("0x10", 16),
        ("0o17", 15),
        ("1e-3", 0.001),
        ("1.5", 1.5),
        (".5", 0.5),
        ("12:30", "12:30"),
        ("2026-01-02", "2026-01-02"),
        ("1_000", "1_000"),
        ("30m", "30m"),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text, value):
    assert plain_scalar(text) == value
    assert type(plain_scalar(text)) is type(value)


def test_values_and_keys_know_where_they_stand():
    root = parse_yaml("a: 1\nb:\n  - x\n  - {c: '2'}\n", "job.yaml")
    assert plain(root) == {"a": 1, "b": ["x", {"c": "2"}]}
    assert root.value["b"].where == "job.yaml:2:1"
    assert root.value["b"].node.value[1].value["c"].node.where == "job.yaml:4:9"


def test_on_as_a_key_stays_a_word():
    assert list(parse_yaml("on: [x]", "f").value) == ["on"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb", "f:3:1: did not find expected ',' or ']'"),
        ("a: 1\n---\nb: 1", "f:2:1: another document begins"),
        ("a: b: c", "f:1:5: mapping values are not allowed in this context"),
        ("a:\tb\n\tc: 1", "f:2:1: found a tab character that violates indentation"),
        ("a: 1\nb: 2\na: 3", "f:3:1: `a` is defined twice"),
        ("[1]: 2", "f:1:1: a key must be a word"),
        ("a: &x [*x]", "f:1:8: the value contains itself"),
        ("a: *x", "f:1:4: no anchor `&x` is defined before this alias"),
        ("b: 1\na: \x00", "f:2:4: arguments and variables cannot contain a NUL character"),
        ('b: 1\na: ["x\\0"]', "f:2:5: arguments and variables cannot contain a NUL character"),
        ('"a\\0": 1', "f:1:1: arguments and variables cannot contain a NUL character"),
        ("a: \x01", "f: unacceptable character #x0001: control characters are not allowed"),
        ("b: 1\na: !vault abc", "f:2:4: the tag `!vault` has no meaning in a job file"),
        ("a: !!str 1", "f:1:4: the tag `!!str` has no meaning in a job file"),
        ("a: ! 1", "f:1:4: the tag `!` has no meaning in a job file"),
        ("a: !!set {b}", "f:1:4: the tag `!!set` has no meaning in a job file"),
        ("!k a: 1", "f:1:1: the tag `!k` has no meaning in a job file"),
        ("a: &x 1\n*x : 2", "f:2:1: a key must be a word"),
        (f"a: {'[' * 64}", "f:1:67: more than 64 levels of nesting"),
        ("", "f is empty"),
        ("# only a comment\n", "f is empty"),
    ],
)
def test_what_is_no_job_is_refused_with_its_place(text, message):
    with pytest.raises(LaunchError) as caught:
        parse_yaml(text, "f")
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("args:\n\tepochs: 3\n", "2:1", "indent with spaces"),
        ("\ta: 1\n", "1:1", "indent with spaces"),
        ("\ufeffa:\r\n\tb: 1\r\n", "2:1", "indent with spaces"),
        ("a:\n  b: 1\n\tc: 2\n", "3:1", "indent with spaces"),
        (
            "a:\t@x\n",
            "1:4",
            "close every quote and bracket; quote a text that begins with a sign",
        ),
        ('a: "\\ud83d\\ude80"\n', "1:7", "write the character itself, as UTF-8"),
    ],
)
def test_hint_is_about_the_character_at_the_place(text, place, hint):
    with pytest.raises(LaunchError) as caught:
        parse_yaml(text, "f")
    assert caught.value.message.startswith(f"f:{place}: ")
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        (
            r'{"\uD83D\udE80 go": "\\\ud83d\ude80", "b": 1}',
            r'{"\U0001f680 go"  : "\\\U0001f680"  , "b": 1}',
        ),
        (r'["\\ud83d\ude80"]', None),  # a backslash, and half of a pair
        (r'["\ude80\ud83d", "\ud83d x"]', None),
        (r'["\\", "\"\/\u00e9"]', None),
    ],
)
def test_surrogate_pairs_of_json_are_one_character_and_move_nothing_behind_them(text, joined):
    assert with_joined_surrogates(text) == (joined or text)


def test_json_that_closes_no_quote_is_looked_at_once():
    text = '"' + '\\"' * 400_000 + "\\"
    assert with_joined_surrogates(text) == text


def test_an_alias_shares_its_anchors_value_and_counts_in_full():
    root = parse_yaml("a: &a [x, 2]\nb: {c: *a}\nd: &a 3\ne: *a", "f")
    assert plain(root) == {"a": ["x", 2], "b": {"c": ["x", 2]}, "d": 3, "e": 3}
    assert root.value["b"].node.value["c"].node is root.value["a"].node
    with pytest.raises(LaunchError, match=r"^f:2:3\d\d: more than 10000 values, each alias"):
        parse_yaml(f"a: &a [{'x, ' * 99}x]\nb: [{'*a, ' * 100}]", "f")


def test_a_document_of_the_most_values_and_levels_is_read():
    for most in (f"[{'x, ' * (MOST_VALUES - 1)}]", f"{'[' * MOST_DEPTH}{']' * MOST_DEPTH}"):
        parse_yaml(most, "f")
    with pytest.raises(LaunchError, match="more than 10000 values"):
        parse_yaml(f"[{'x, ' * MOST_VALUES}]", "f")


def test_a_whole_number_that_no_machine_keeps_is_text():
    assert [plain_scalar(text) for text in ("9" * 5000, "0x" + "f" * 5000)] == [
        "9" * 5000,
        "0x" + "f" * 5000,
    ]


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("args.epochs=1", ["args", "epochs"], 1),
        ("args.a.b=x=y", ["args", "a.b"], "x=y"),
        ("limits.cost=2.5", ["limits", "cost"], 2.5),
        ("inputs.d.dataset=d@3", ["inputs", "d", "dataset"], "d@3"),
        ("args.sizes=[1, 2]", ["args", "sizes"], [1, 2]),
        ("args.text='1'", ["args", "text"], "1"),
        ("args.note=a: b", ["args", "note"], "a: b"),
        ("code=", ["code"], None),
    ],
)
def test_an_override_is_a_path_and_a_value(assignment, path, value):
    got_path, node = parse_override(assignment)
    assert (got_path, plain(node), node.where) == (path, value, f"--set {assignment}")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("args.x=!vault abc", None),  # no YAML: text as it was typed
        ("args.x=[!vault abc]", "the tag `!vault` has no meaning in a job file"),
        ('args.x="\\0"', "arguments and variables cannot contain a NUL character"),
        ("args.x=\udcff", "an invalid character: a surrogate, or a byte that is not UTF-8"),
        ("limits" + ".a" * 64 + "=1", "more than 64 levels of nesting"),
    ],
)
def test_an_override_is_read_as_carefully_as_a_file(assignment, message):
    if message is None:
        assert parse_override(assignment)[1].value == "!vault abc"
        return
    with pytest.raises(LaunchError) as caught:
        parse_override(assignment)
    assert caught.value.message == f"--set {assignment}: {message}"


@pytest.mark.parametrize("assignment", ["epochs", "=3", ""])
def test_an_override_without_key_or_value_is_refused(assignment):
    with pytest.raises(LaunchError, match="is not KEY=VALUE"):
        parse_override(assignment)


def test_overriding_makes_mappings_on_the_way_and_leaves_the_original():
    root = parse_yaml("a: {b: 1, c: 2}", "f")
    changed = with_override(root, *parse_override("a.b=5"))
    changed = with_override(changed, *parse_override("limits.hang=1m"))
    assert plain(changed) == {"a": {"b": 5, "c": 2}, "limits": {"hang": "1m"}}
    assert plain(root) == {"a": {"b": 1, "c": 2}}
