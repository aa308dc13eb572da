"""Every verb of `launch` is a function that takes the same and gives what `--json` prints."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import subprocess
import sys
import traceback
import typing
from pathlib import Path
from types import ModuleType, SimpleNamespace

import msgspec
import pytest

import trainyard
from jobs import calling
from jobs.cli import VERBS
from jobs.contracts.errors import EnvironmentFailure, ExitCode, LaunchError, NotFound
from jobs.host import console
from jobs.host.becoming import become
from tests.busy import how_busy
from tests.documents.python_stub import STUB, WRITE, stub_text
from tests.documents.value_types import VALUES, Types
from tests.trainyard.steady import steady
from trainyard import verbs
from trainyard.verbs import Word, find_command, words_of

FOR_SHELLS = {"completion", "shell", "ui"}
IMPORT = "import sys, time; began = time.process_time(); import trainyard"
REPORT = "print(time.process_time() - began); print(*sys.modules)"


def every_command():
    """Each verb and member of a group, with the words to type it."""
    for name in (each for each in VERBS if each not in FOR_SHELLS):
        command = find_command(name)
        group = getattr(command, "commands", None)
        if group is None:
            yield pytest.param([name], command, id=name)
        for each, found in (group or {}).items():
            yield pytest.param([name, each], found, id=f"{name} {each}")


EVERY = list(every_command())


def function_of(path):
    found = getattr(trainyard, path[0], None) or getattr(trainyard, f"{path[0]}_")
    for name in path[1:]:
        found = getattr(found, name, None) or getattr(found, f"{name}_")
    return found


def sample(word: Word):
    """A value as a program would give it, and the words that a person would type."""
    if word.is_flag:
        return True, [word.option]
    if word.name == "set":
        typed = ["args.epochs=3", "args.sizes=[1, 2]", "name=x y"]
        named = {"args.epochs": 3, "args.sizes": [1, 2], "name": "x y"}
        return named, [f"--set={each}" for each in typed]
    if word.is_many:
        texts = ["-first", "second"]
        return texts, [f"{word.option}={each}" for each in texts] if word.option else texts
    return "7", [f"{word.option}=7"] if word.option else ["7"]


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_the_words_of_a_call_are_those_that_a_person_types(path, command, monkeypatch):
    words = [each for each in words_of(command, path[0]) if each.name != "env"]
    samples = {word.name: sample(word) for word in words}
    asked = []
    monkeypatch.setattr(verbs, "call", lambda typed: asked.append(typed) or {"id": "x"})
    monkeypatch.setattr("trainyard.one_run.Run", lambda *_, **__: "run")

    value = function_of(path)(**{name: each for name, (each, _) in samples.items()})

    options = [each for word in words if word.option for each in samples[word.name][1]]
    places = [each for word in words if not word.option for each in samples[word.name][1]]
    has_json = any(each.name == "json" for each in command.params)
    head = [*path, *(["--json"] if has_json else [])]
    if path[0] in verbs.STARTS:
        head.insert(1, "--detach")
    assert asked == [[*head, *options, *(["--", *places] if places else [])]]
    assert value == ("run" if path[0] in verbs.STARTS else {"id": "x"})


def test_numbers_and_arrays_of_numpy_are_typed_as_those_of_python(monkeypatch):
    import numpy as np

    asked = []
    monkeypatch.setattr(verbs, "call", asked.append)
    named = {
        "args.n": np.int64(1),
        "args.lr": np.float32(0.5),
        "args.amp": np.bool_(True),
        "args.sizes": np.array([8, 16]),
        "args.mixed": [np.int32(2), 0.5],
        "inputs.data": {"path": Path("data")},
    }
    trainyard.plan("job.yaml", set=named, nodes=np.int64(2))
    for answer in (True, False):
        trainyard.rm("last", yes=np.bool_(answer))
    assert [sorted(each) for each in asked] == [
        sorted(
            [
                *("plan", "--json", "--nodes=2", "--", "job.yaml"),
                *("--set=args.n=1", "--set=args.lr=0.5", "--set=args.amp=true"),
                *("--set=args.sizes=[8, 16]", "--set=args.mixed=[2, 0.5]"),
                '--set=inputs.data={"path": "data"}',
            ]
        ),
        sorted(["rm", "--json", "--yes", "--", "last"]),
        sorted(["rm", "--json", "--", "last"]),
    ]
    with pytest.raises(TypeError, match="is neither text, a number nor a list or mapping of such"):
        trainyard.plan("job.yaml", set={"args.n": object()})


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_a_function_takes_all_that_its_verb_takes(path, command):
    left = {"json", "help", *(verbs._OF_STARTING if path[0] in verbs.STARTS else ())}
    taken = {
        each.opts[-1].lstrip("-").replace("-", "_")
        for each in command.params
        if each.name not in left
    }
    parameters = inspect.signature(function_of(path)).parameters
    assert {each.rstrip("_") for each in parameters} == taken
    assert function_of(path).__doc__.startswith((command.help or "").partition("\n")[0])


# Calls whose values are here to be had, and those of `run` and `rerun`, which give a Run.
CALLS = [
    (["ls"], {}),
    (["ls"], {"state": "completed", "limit": 1}),
    (["show"], {"run": "last"}),
    (["logs"], {"tail": 1}),
    (["diff"], {"a": 0, "b": 1}),
    (["report"], {"runs": [0, 1]}),
    (["wait"], {"timeout": "0"}),
    (["jobs"], {}),
    (["plan"], {"job": "job.yaml", "set": {"env.A": "b"}}),
    (["env", "show"], {}),
    (["schema"], {"what": "job"}),
    (["doctor"], {}),
    (["image", "ls"], {}),
]


def with_json():
    """Each verb that has --json, with its words."""
    for each in EVERY:
        path, command = each.values
        if any(param.name == "json" for param in command.params):
            yield path, command


@pytest.mark.parametrize(
    ("path", "given"), CALLS, ids=lambda each: " ".join(each) if isinstance(each, list) else None
)
def test_a_function_gives_what_json_prints(launching, path, given):
    runs = [launching.add_run(name="a"), launching.add_run(name="b")]
    launching.write_job("name: x\nimage: none\ncommand: [python]\n")
    given = {
        name: runs[each] if isinstance(each, int) and name in ("a", "b") else each
        for name, each in given.items()
    }
    if "runs" in given:
        given["runs"] = [runs[each] for each in given["runs"]]
    command = find_command(path[0])
    command = getattr(command, "commands", {path[-1]: command})[path[-1]]
    words = {each.name: each for each in words_of(command, path[0])}
    typed = verbs._typed(words.values(), given)
    where = ["--env", str(launching.env_file)] if "env" in words else []
    at = typed.index("--") if "--" in typed else len(typed)

    done = launching.type_bare(*path, "--json", *typed[:at], *where, *typed[at:])
    value = function_of(path)(**given, **({"env": launching.env_file} if where else {}))

    assert done.out, done.err
    try:
        told = msgspec.json.decode(done.out)
    except msgspec.DecodeError:
        told = [msgspec.json.decode(line) for line in done.out.splitlines()]
    assert told
    assert steady(value) == steady(told)
    if (verb := " ".join(path)) in VALUES:
        conforms(value, verb)


def conforms(value, verb):
    """The stub says of which type it is, and no key more or less."""
    types = Types()
    word, module = types.of(verb), ModuleType("stub_of_a_test")
    sys.modules[module.__name__] = module  # where the names in annotations are looked for
    vars(module).update({each: getattr(typing, each) for each in typing.__all__})
    text = types.text()
    exec(compile(text, "stub", "exec", dont_inherit=True), vars(module))
    kind = eval(word, vars(module))
    as_told = msgspec.convert(value, kind)
    assert msgspec.to_builtins(as_told) == value
    for each in value if isinstance(value, list) else [value]:
        named = vars(module)[word.removeprefix("list[").removesuffix("]")]
        assert named.__required_keys__ <= each.keys() <= named.__annotations__.keys()


@pytest.mark.parametrize(
    ("path", "command"),
    [
        pytest.param(path, command, id=" ".join(path))
        for path, command in with_json()
        if path not in [each for each, _ in CALLS] and path[0] not in verbs.STARTS
    ],
)
def test_a_function_gives_the_value_that_its_verb_prints(path, command, monkeypatch):
    """Those that need a cloud, a store or a data program: whatever the verb prints, with --json.

    `make faults` compares their own values: tests/integration/test_values.py, azureml/test_values.py.
    """
    printed = {"of": path, "value": [1, None, "<text>"]}

    def verb(typed):
        assert "--json" in typed
        if (tuple(path)) in calling._LINE_BY_LINE:
            console.out(msgspec.json.encode(printed).decode())
        else:
            console.out_json(printed)
        return 0

    monkeypatch.setattr("jobs.cli.call", verb)
    given = {each.name: sample(each)[0] for each in words_of(command, path[0]) if each.is_required}
    expected = [printed] if tuple(path) in calling._LINE_BY_LINE else printed
    assert function_of(path)(**given) == expected


def test_every_verb_with_a_typed_value_is_called():
    assert VALUES.keys() - {"env ls"} <= {" ".join(path) for path, _ in CALLS}


def test_messages_and_warnings_go_to_the_log_and_nothing_is_printed(launching, caplog, capsys):
    caplog.set_level(logging.INFO, "trainyard")
    launching.write_job("name: x\nimage: none\ncommand: [python]\n")

    run = trainyard.run("job.yaml", env=launching.env_file)

    assert run.state == "completed"
    assert any(each.message.startswith("job       x\n") for each in caplog.records)
    assert capsys.readouterr() == ("", "")


def test_a_question_is_an_error_that_names_the_argument(launching):
    run = launching.add_run()
    with pytest.raises(LaunchError) as caught:
        trainyard.rm(run, env=launching.env_file)
    assert caught.value.hint == "yes=True answers every question"
    assert trainyard.rm(run, yes=True, env=launching.env_file)
    assert launching.run_folders() == []


def test_mistakes_are_the_errors_of_launch(launching):
    with pytest.raises(NotFound) as caught:
        trainyard.show("nope", env=launching.env_file)
    assert caught.value.exit_code == ExitCode.NOT_FOUND
    with pytest.raises(LaunchError, match="has to be a whole number"):
        trainyard.ls(limit="x", env=launching.env_file)
    with pytest.raises(LaunchError, match="stack and env exclude each other"):
        trainyard.ls(stack="dev", env="x.json")
    with pytest.raises(TypeError, match=r"trainyard.data.push\(\): missing .* 'name'"):
        trainyard.data.push("folder")
    with pytest.raises(AttributeError, match="has no `completion`"):
        trainyard.completion  # noqa: B018


def test_the_traceback_of_a_mistake_shows_the_hint_and_no_frame_of_the_command_line(launching):
    with pytest.raises(NotFound) as caught:
        trainyard.show("nope", env=launching.env_file)
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]
    shown = "".join(traceback.format_exception(caught.value))
    frames = traceback.extract_tb(caught.value.__traceback__)
    ours = [Path(each.filename).name for each in frames if "/jobs/" in each.filename]
    assert ours == ["calling.py"]
    assert shown.endswith(f"{caught.value.message}\n{caught.value.__notes__[0]}\n")


def test_what_is_run_beside_a_rank_leaves_this_process_as_it_is(tmp_path):
    before = Path.cwd(), os.getpriority(os.PRIO_PROCESS, 0)
    told = calling._Heard()
    program = "import os; print(os.getcwd(), os.environ['RANK'], os.getpriority(0, 0))"
    with console.heard_by(told):
        become([sys.executable, "-c", program], {"RANK": "3"}, folder=tmp_path, nice=0)
        with pytest.raises(EnvironmentFailure, match="ended with exit code 7") as caught:
            become(["sh", "-c", "echo no >&2; exit 7"], dict(os.environ), folder=tmp_path, nice=19)
    assert told.lines == [f"{tmp_path} 3 {before[1]}"]
    assert caught.value.hint == "no"
    assert (Path.cwd(), os.getpriority(os.PRIO_PROCESS, 0)) == before


@pytest.mark.parametrize("events", [["done"], ["note", "done"]])
def test_events_of_a_data_program_are_a_list(monkeypatch, tmp_path, events):
    def tells(words):
        for each in events:
            console.out(f'{{"event": "{each}"}}')
        return 0

    monkeypatch.setattr("jobs.cli.call", tells)
    told = trainyard.data.prepare("digits", to=tmp_path)
    assert told == [{"event": each} for each in events]


def test_a_bare_exit_code_is_an_error(monkeypatch):
    def ends(words):
        console.warn("two of three were told to end")
        return int(ExitCode.UNFINISHED)

    monkeypatch.setattr("jobs.cli.call", ends)
    with pytest.raises(LaunchError, match="two of three") as caught:
        trainyard.cancel("last")
    assert caught.value.exit_code == ExitCode.UNFINISHED


def test_a_call_within_an_event_loop_has_a_loop_of_its_own(launching, monkeypatch):
    async def answer():
        return "there"

    def asks(words):
        console.out(asyncio.run(answer()))
        return 0

    monkeypatch.setattr("jobs.cli.call", asks)

    async def cell():
        said = trainyard.image.path("pytorch")
        return said, asyncio.get_running_loop() is not None

    assert asyncio.run(cell()) == ("there", True)


def test_the_module_lists_the_verbs():
    classes = {"Run", "LaunchError", "EnvironmentFailure", "Refused", "NotFound"}
    listed = {each.rstrip("_") for each in dir(trainyard)}
    assert listed == VERBS.keys() - FOR_SHELLS | classes
    assert issubclass(trainyard.Refused, trainyard.LaunchError)
    assert isinstance(trainyard.data, SimpleNamespace)


def test_the_stub_is_what_the_verbs_say():
    assert STUB.read_text(encoding="utf-8") == stub_text(), f"type {WRITE}"


def test_importing_it_is_light():
    done = subprocess.run(
        [sys.executable, "-c", f"{IMPORT}; {REPORT}"], capture_output=True, text=True, check=True
    )
    cpu_s, modules = done.stdout.splitlines()
    assert not {"azure", "yaml", "matplotlib", "typer", "msgspec", "asyncio"} & set(modules.split())
    assert float(cpu_s) <= 0.060 * how_busy()
