"""What a build is lent of this machine's package index, wherever it was set."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from jobs.images.package_index import find_certificates, find_settings, lend

NONE = {"PIP_CONFIG_FILE": os.devnull, "UV_CONFIG_FILE": os.devnull}
INDEX = "https://index.example/simple"
OTHER = "https://other.example/simple"


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_machine_without_settings_lends_nothing(tmp_path):
    assert lend(tmp_path, NONE, tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (
            {"PIP_INDEX_URL": INDEX},
            {"PIP_INDEX_URL": INDEX, "UV_DEFAULT_INDEX": INDEX},
        ),
        (
            {"UV_INDEX_URL": INDEX},
            {"PIP_INDEX_URL": INDEX, "UV_INDEX_URL": INDEX},
        ),
        (
            {"PIP_INDEX_URL": INDEX, "UV_DEFAULT_INDEX": OTHER},
            {"PIP_INDEX_URL": INDEX, "UV_DEFAULT_INDEX": OTHER},
        ),
        (
            {"UV_INDEX": OTHER, "HOME": "/x", "PIP_TIMEOUT": "3"},
            {"UV_INDEX": OTHER, "PIP_EXTRA_INDEX_URL": OTHER},
        ),
    ],
)
def test_the_environment_counts_and_one_tools_setting_serves_both(tmp_path, given, found):
    assert find_settings({**NONE, **given}, tmp_path) == found


def test_the_files_of_pip_count_below_the_environment(tmp_path):
    config = write(
        tmp_path,
        "pip.conf",
        f"[global]\nindex-url = {INDEX}\nextra-index-url =\n  {OTHER}\n  https://c.example\n"
        "trusted-host = index.example\ntimeout = 60\n",
    )
    environ = {**NONE, "PIP_CONFIG_FILE": str(config)}
    extra = f"{OTHER} https://c.example"
    assert find_settings(environ, tmp_path) == {
        "PIP_INDEX_URL": INDEX,
        "PIP_EXTRA_INDEX_URL": extra,
        "PIP_TRUSTED_HOST": "index.example",
        "UV_DEFAULT_INDEX": INDEX,
        "UV_INDEX": extra,
    }
    over = find_settings({**environ, "PIP_INDEX_URL": OTHER}, tmp_path)
    assert over["PIP_INDEX_URL"] == OTHER


def test_the_file_of_uv_counts(tmp_path):
    write(
        tmp_path,
        ".config/uv/uv.toml",
        f'[[index]]\nurl = "{INDEX}"\ndefault = true\n[[index]]\nurl = "{OTHER}"\n',
    )
    assert find_settings({"PIP_CONFIG_FILE": os.devnull}, tmp_path) == {
        "UV_DEFAULT_INDEX": INDEX,
        "UV_INDEX": OTHER,
        "PIP_INDEX_URL": INDEX,
        "PIP_EXTRA_INDEX_URL": OTHER,
    }


@pytest.mark.parametrize("text", ["not = [toml", "[global\nindex-url", "\x00"])
def test_a_file_that_cannot_be_read_is_no_setting(tmp_path, text):
    broken = write(tmp_path, "broken", text)
    environ = {"PIP_CONFIG_FILE": str(broken), "UV_CONFIG_FILE": str(broken)}
    found = find_settings({**environ, "PIP_INDEX_URL": INDEX}, tmp_path)
    assert found["PIP_INDEX_URL"] == INDEX


def test_certificates_are_lent_where_somebody_set_them(tmp_path):
    bundle = write(tmp_path, "ca.pem", "certificates")
    assert find_certificates(NONE, tmp_path) is None
    assert find_certificates({**NONE, "SSL_CERT_FILE": str(tmp_path / "gone")}, tmp_path) is None
    config = write(tmp_path, "pip.conf", f"[global]\ncert = {bundle}\n")
    assert find_certificates({"PIP_CONFIG_FILE": str(config)}, tmp_path) == bundle
    lent = lend(tmp_path, {**NONE, "SSL_CERT_FILE": str(bundle)}, tmp_path)
    assert lent == {"certificates": bundle, "index": tmp_path / "index"}
    assert (tmp_path / "index").read_text() == (
        "PIP_CERT=/run/secrets/certificates\nSSL_CERT_FILE=/run/secrets/certificates\n"
    )


def test_any_value_reaches_the_build_as_it_is_and_the_file_is_ours_alone(tmp_path):
    value = "https://me:$(touch x)'\"`id`;&@index.example/a b"
    lent = lend(tmp_path, {**NONE, "PIP_INDEX_URL": value}, tmp_path)
    assert lent["index"].stat().st_mode & 0o777 == 0o600
    script = f"set -a; . {shlex.quote(str(lent['index']))}; env"
    answer = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert f"PIP_INDEX_URL={value}\n" in answer.stdout
    assert not (tmp_path / "x").exists()


def test_the_script_of_the_images_hands_the_settings_on_and_needs_none(tmp_path):
    """As in the Dockerfile, but for the place of the secrets."""
    root = Path(__file__).parents[3]
    text = (root / "images" / "with-index.sh").read_text()
    index = write(tmp_path, "index", "PIP_INDEX_URL='https://index.example'\n")
    for place, shown in ((index, "https://index.example"), (tmp_path / "none", "")):
        script = write(tmp_path, "with-index.sh", text.replace("/run/secrets/index", str(place)))
        answer = subprocess.run(
            ["/bin/sh", script, "/bin/sh", "-c", 'printf %s "$PIP_INDEX_URL"; exit 3'],
            capture_output=True,
            text=True,
            check=False,
            env={},
        )
        assert (answer.stdout, answer.returncode) == (shown, 3)
