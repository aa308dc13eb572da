"""An `up` of a cloud stack is judged before it begins, by the stack it names; others pass."""

import pytest

from jobs.contracts.errors import ExitCode
from jobs.host.pulumi_command import as_typed_here
from tools import gate
from tools.gate import SKIP, main, verb_of

CLOUD = "config:\n  trainyard:engine: azureml\n"
LOCAL = "config:\n  trainyard:engine: local\n"
# Answers `stack --show-name` alone.
PULUMI = '#!/bin/sh\n[ "$*" = "stack --show-name --non-interactive" ] || exit 9\n'


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A clone with a cloud stack `prod` and a local one `mine`; we are in a folder of it."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "Pulumi.yaml").touch()
    (tmp_path / "Pulumi.prod.yaml").write_text(CLOUD)
    (tmp_path / "Pulumi.mine.yaml").write_text(LOCAL)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    select(tmp_path, 'echo "error: no stack selected" >&2; exit 255')
    monkeypatch.chdir(tmp_path / "deep")
    return tmp_path


@pytest.fixture
def judged(monkeypatch):
    """The stacks that were judged; all of them break a rule."""
    found = []
    monkeypatch.setattr(gate, "judge", lambda _, stack: found.append(stack) or 3)
    return found


def select(root, answer):
    pulumi = root / ".venv" / "bin" / "pulumi"
    pulumi.write_text(f"{PULUMI}{answer}\n")
    pulumi.chmod(0o755)


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("up -s prod", "up"),
        ("-s prod up", "up"),
        ("--stack prod update", "update"),
        ("--stack=prod -e --non-interactive up", "up"),
        ("-C up preview", "preview"),
        ("--color never -v 3 watch", "watch"),
        ("config set greeting up", "config"),
        ("-ysprod up", "up"),
        ("-- up", ""),
        ("-C", ""),
        ("", ""),
    ],
)
def test_the_verb_is_found_as_pulumi_finds_it(words, verb):
    assert verb_of(words.split()) == verb


@pytest.mark.parametrize("stack", ["prod", "org/trainyard/prod", "dev-anything"])
def test_an_up_of_a_cloud_stack_is_judged(root, judged, stack):
    assert main([str(root), stack, "up", "-s", stack], {}) == 3
    assert judged == [stack.rpartition("/")[2]]


@pytest.mark.parametrize(("settings", "code"), [("", 3), ("config:\n", 3), ("[]", 3), ("a: [", 1)])
def test_settings_that_are_none_are_no_way_past_it(root, judged, settings, code):
    (root / "Pulumi.prod.yaml").write_text(settings)
    assert main([str(root), "prod", "up"], {}) == code


@pytest.mark.parametrize("named", ["", "?"])
def test_where_none_is_named_the_selected_one_is_judged(root, judged, named):
    select(root, "echo prod")
    assert main([str(root), named, "up"], {}) == 3
    assert judged == ["prod"]


def test_where_none_is_selected_either_it_has_to_be_named(root, judged, capsys):
    assert main([str(root), "?", "up"], {}) == 3
    said = capsys.readouterr().err
    assert "`up` of which stack? error: no stack selected" in said
    assert as_typed_here("hint: name it: `pulumi up -s STACK`") in said
    assert judged == []


@pytest.mark.parametrize(
    "options",
    [
        ("-c", "trainyard:clusters={}"),
        ("-yctrainyard:owner=me",),
        ("--config=trainyard:owner=me",),
        ("--config-file", "other.yaml"),
    ],
)
def test_settings_on_the_command_line_are_refused_for_nobody_would_judge_them(
    root, judged, capsys, options
):
    assert main([str(root), "prod", "up", "-s", "prod", *options], {}) == 3
    said = capsys.readouterr().err
    assert as_typed_here("hint: pulumi config set -s prod ..., then `up`") in said
    assert main([str(root), "prod", "up"], {"PULUMI_OPTION_CONFIG": "trainyard:owner=me"}) == 3
    assert judged == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("prod", "preview", "-m", "up"),
        ("prod", "up", "--help"),
        ("mine", "up", "-s", "mine"),
        ("prod", "up", "-C", "/"),
        ("prod", "-C/", "up"),
    ],
    ids=["preview", "help", "local", "another project", "before the verb"],
)
def test_all_else_goes_on_unjudged(root, judged, arguments):
    assert main([str(root), *arguments], {}) == 0
    assert judged == []


def test_the_variable_names_the_one_stack_that_it_lets_pass_and_is_told(root, judged, capsys):
    assert main([str(root), "prod", "up"], {SKIP: "prod"}) == 0
    assert capsys.readouterr().err == f"policy: prod is not judged, {SKIP} names it\n"
    assert main([str(root), "prod", "up"], {SKIP: "dev"}) == 3
    assert main([str(root), "prod", "up"], {SKIP: "1"}) == 3
    assert judged == ["prod", "prod"]


def test_a_stack_that_breaks_a_rule_is_told_how_to_go_on(monkeypatch, capsys):
    from tests.environments import policy

    asked = []

    def refuse(argv, *, project):
        asked.append((argv, project))
        return ExitCode.REFUSED

    monkeypatch.setattr(policy, "main", refuse)
    assert gate.judge("project", "dev-anything") == 3
    assert asked == [(["dev-anything"], "project")]
    assert capsys.readouterr().err == (
        f"hint: mend Pulumi.dev-anything.yaml; {SKIP}=dev-anything goes on all the same\n"
    )
    monkeypatch.setattr(policy, "main", lambda *_, **__: 0)
    assert (gate.judge("project", "prod"), capsys.readouterr().err) == (0, "")
