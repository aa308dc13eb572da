"""Secrets are found in the environment or a file, or all missing ones are named."""

import msgspec
import pytest

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import KeyVault
from jobs.launching.secrets import find_secrets
from tests.fakes.gangs import make_environment, make_spec


@pytest.fixture
def local(tmp_path):
    return make_environment(tmp_path)


def spec(**secrets):
    return make_spec(["true"], secrets=secrets)


def write(folder, text, mode=0o600):
    file = folder / ".secrets.env"
    file.write_text(text)
    file.chmod(mode)


def test_the_environment_wins_over_the_file(local, tmp_path):
    write(tmp_path, "# ours\nA=file\nexport B='quoted value'\nsecret-c=by name\n\nD=\"\"\n")
    found = find_secrets(
        spec(A="secret-a", B="secret-b", C="secret-c"), local, [tmp_path], {"A": "shell"}
    )
    assert found == {"A": "shell", "B": "quoted value", "C": "by name"}


def test_all_missing_ones_are_named_at_once(local, tmp_path):
    with pytest.raises(LaunchError) as caught:
        find_secrets(spec(A="a", B="b", C="c"), local, [tmp_path], {"B": "x"})
    assert caught.value.message == "no value for the secrets `A`, `C`"
    assert caught.value.hint == (
        f"export A=..., or a line A=... in {tmp_path}/.secrets.env (git-ignored)"
    )


def test_the_first_line_counts_behind_a_byte_order_mark(local, tmp_path):
    write(tmp_path, "\ufeffA=x\nB=y\n")
    assert find_secrets(spec(A="a", B="b"), local, [tmp_path], {}) == {"A": "x", "B": "y"}


def test_a_file_that_others_can_read_is_warned_of(local, tmp_path, capsys):
    write(tmp_path, "A=x\n", mode=0o644)
    assert find_secrets(spec(A="a"), local, [tmp_path], {}) == {"A": "x"}
    file = tmp_path / ".secrets.env"
    assert capsys.readouterr().err == (
        f"warning: `{file}` can be read by others; chmod 600 {file}\n"
    )


def test_a_broken_line_is_named_by_number_and_never_shown(local, tmp_path):
    write(tmp_path, "A=x\nhunter2\n")
    with pytest.raises(LaunchError) as caught:
        find_secrets(spec(A="a"), local, [tmp_path], {})
    assert caught.value.message == f"{tmp_path}/.secrets.env:2: not NAME=value"


def test_a_value_is_never_cut_and_holds_no_nul(local, tmp_path):
    write(tmp_path, "A=a\u2028b\x0cc\r\nB=x\n")
    assert find_secrets(spec(A="a", B="b"), local, [tmp_path], {}) == {
        "A": "a\u2028b\x0cc",
        "B": "x",
    }
    write(tmp_path, "A=x\nB=y\0z\n")
    with pytest.raises(LaunchError) as caught:
        find_secrets(spec(A="a"), local, [tmp_path], {})
    assert caught.value.message == (
        f"{tmp_path}/.secrets.env:2: variables cannot contain a NUL character"
    )


def test_a_stack_with_a_vault_looks_for_none(local, tmp_path):
    vault = msgspec.structs.replace(local, key_vault=KeyVault(uri="https://v"))
    assert find_secrets(spec(A="a"), vault, [tmp_path], {}) == {}
