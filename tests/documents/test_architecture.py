"""The picture of the rooms: which arrows it draws, what it counts, and that the page has it."""

from tests.documents.architecture import (
    BEGIN,
    END,
    layers_of,
    main,
    needed,
    num_circles,
    room_arrows,
)

MODULES = {
    "jobs.cli": {"jobs.commands.run", "jobs.host.console"},
    "jobs.commands.run": {"jobs.host.console", "jobs.commands.options"},
    "jobs.commands.options": {"jobs.commands.run"},
    "jobs.host.console": set(),
}


def test_imports_of_modules_fold_into_arrows_of_rooms():
    assert room_arrows(MODULES) == {"cli": {"commands", "host"}, "commands": {"host"}}


def test_an_arrow_that_a_longer_way_says_is_not_drawn():
    assert needed(room_arrows(MODULES)) == {"cli": {"commands"}, "commands": {"host"}}


def test_circles_are_counted():
    assert num_circles(MODULES) == 1
    assert num_circles(room_arrows(MODULES)) == 0


def test_layers_come_from_the_contract():
    layers = ["cli", "runs | datasets"]
    contracts = [{"type": "forbidden"}, {"containers": ["jobs"], "layers": layers}]
    settings = {"tool": {"importlinter": {"contracts": contracts}}}
    assert layers_of(settings) == [["cli"], ["runs", "datasets"]]


def test_a_page_that_differs_from_the_imports_is_refused(tmp_path, monkeypatch, capsys):
    page = tmp_path / "architecture.md"
    page.write_text(f"{BEGIN}\nold\n{END}\n", encoding="utf-8")
    monkeypatch.setattr("tests.documents.architecture.PAGE", page)
    monkeypatch.setattr("tests.documents.architecture.PROJECT", tmp_path)
    monkeypatch.setattr("tests.documents.architecture.rooms_text", lambda project: "new")
    assert main(["--check"]) == 1
    assert "architecture.md is not what the imports say" in capsys.readouterr().out
    assert main([]) == 0
    assert page.read_text(encoding="utf-8") == f"{BEGIN}\nnew\n{END}\n"
    assert main(["--check"]) == 0
