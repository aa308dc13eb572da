"""Lends this machine's package index and certificates to a build, which keeps none of it."""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import Any

# Where a Dockerfile's RUN finds the certificates that it was lent.
CERTIFICATES = "/run/secrets/certificates"
VARIABLES = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_INSECURE_HOST",
)
# uv does not read pip's settings, nor pip uv's: what is set for one serves both.
SAME = (
    ("PIP_INDEX_URL", ("UV_DEFAULT_INDEX", "UV_INDEX_URL")),
    ("PIP_EXTRA_INDEX_URL", ("UV_INDEX", "UV_EXTRA_INDEX_URL")),
)
CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def lend(folder: Path, environ: Mapping[str, str], home: Path) -> dict[str, Path]:
    """Write the secrets of a build into a folder of the caller's; gives their files by id."""
    settings = find_settings(environ, home)
    certificates = find_certificates(environ, home)
    lent: dict[str, Path] = {}
    if certificates is not None:
        lent["certificates"] = certificates
        settings |= {"PIP_CERT": CERTIFICATES, "SSL_CERT_FILE": CERTIFICATES}
    if settings:
        lent["index"] = folder / "index"
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in sorted(settings.items())]
        lent["index"].touch(mode=0o600)
        lent["index"].write_text("".join(lines), encoding="utf-8")
    return lent


def find_settings(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Find the index: from the environment, else from pip's and uv's files; as variables."""
    found = {**_from_uv(environ, home), **_from_pip(environ, home)}
    found |= {name: environ[name] for name in VARIABLES if environ.get(name)}
    for pips, uvs in SAME:
        known = [found[name] for name in (pips, *uvs) if name in found]
        if known:
            found.setdefault(pips, known[0])
            if not any(name in found for name in uvs):
                found[uvs[0]] = known[0]
    return found


def find_certificates(environ: Mapping[str, str], home: Path) -> Path | None:
    """Find the certificates that this machine trusts, if somebody had to name them."""
    named = [environ.get(name) for name in CERTIFICATE_VARIABLES]
    named.append(_pip_setting(_pip_files(environ, home), "cert"))
    return next((Path(each) for each in named if each and Path(each).is_file()), None)


def _from_pip(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    files = _pip_files(environ, home)
    keys = {"PIP_INDEX_URL": "index-url", "PIP_EXTRA_INDEX_URL": "extra-index-url"}
    found = {name: _pip_setting(files, key) for name, key in keys.items()}
    found["PIP_TRUSTED_HOST"] = _pip_setting(files, "trusted-host")
    return {name: " ".join(value.split()) for name, value in found.items() if value}


def _config_folder(environ: Mapping[str, str], home: Path) -> Path:
    given = Path(environ.get("XDG_CONFIG_HOME", ""))
    # A relative one is to be ignored, says the specification.
    return given if given.is_absolute() else home / ".config"


def _pip_files(environ: Mapping[str, str], home: Path) -> list[Path]:
    """List pip's files, strongest first; none where PIP_CONFIG_FILE is /dev/null, as pip has it."""
    own = environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return []
    config = _config_folder(environ, home)
    files = [config / "pip" / "pip.conf", home / ".pip" / "pip.conf", Path("/etc/pip.conf")]
    return [Path(own), *files] if own else files


def _pip_setting(files: list[Path], key: str) -> str | None:
    for file in files:
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(file, encoding="utf-8")
        except (ConfigError, OSError, UnicodeDecodeError):
            continue
        for section in ("install", "global"):
            value = parser.get(section, key, fallback="")
            if value:
                return value
    return None


def _from_uv(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    config = _config_folder(environ, home)
    own = environ.get("UV_CONFIG_FILE")
    places = [config / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]
    for file in [Path(own), *places] if own else places:
        try:
            written = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return _uv_variables(written)
    return {}


def _uv_variables(written: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    extra: list[str] = list(written.get("extra-index-url", []))
    if "index-url" in written:
        found["UV_DEFAULT_INDEX"] = written["index-url"]
    for index in written.get("index", []):
        if index.get("default"):
            found["UV_DEFAULT_INDEX"] = index["url"]
        elif "url" in index:
            extra.append(index["url"])
    if extra:
        found["UV_INDEX"] = " ".join(extra)
    return found
