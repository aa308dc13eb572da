"""Lends this machine's package index and certificates to a build, which keeps none of it."""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import suppress
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
    pip, uv = _read_pip(environ, home), _read_uv(environ, home)
    indexes: list[dict[str, Any]] = [each for each in uv.get("index", []) if "url" in each]
    main = [each["url"] for each in indexes if each.get("default")]
    extra = [each["url"] for each in indexes if not each.get("default")]
    named = {
        "PIP_INDEX_URL": pip.get("index-url", ""),
        "PIP_EXTRA_INDEX_URL": pip.get("extra-index-url", ""),
        "PIP_TRUSTED_HOST": pip.get("trusted-host", ""),
        "UV_DEFAULT_INDEX": (main or [uv.get("index-url", "")])[-1],
        "UV_INDEX": " ".join([*uv.get("extra-index-url", []), *extra]),
    }
    found = {name: " ".join(value.split()) for name, value in named.items() if value}
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
    named.append(_read_pip(environ, home).get("cert"))
    return next((Path(each) for each in named if each and Path(each).is_file()), None)


def _read_pip(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Read pip's files, a stronger one over a weaker; none where PIP_CONFIG_FILE is /dev/null."""
    own = environ.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return {}
    config = _config_folder(environ, home)
    files = ["/etc/pip.conf", home / ".pip/pip.conf", config / "pip/pip.conf", own]
    found: dict[str, str] = {}
    for file in files:
        parser = ConfigParser(interpolation=None)
        with suppress(ConfigError, OSError, UnicodeDecodeError):
            parser.read(file, encoding="utf-8")
            for section in ("global", "install"):
                given = dict(parser.items(section)) if parser.has_section(section) else {}
                found |= {key: value for key, value in given.items() if value}
    return found


def _read_uv(environ: Mapping[str, str], home: Path) -> dict[str, Any]:
    """Read the first of uv's files that can be read."""
    config = _config_folder(environ, home)
    own = environ.get("UV_CONFIG_FILE")
    for file in (*([own] if own else []), config / "uv/uv.toml", "/etc/uv/uv.toml"):
        with suppress(OSError, ValueError):
            return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    return {}


def _config_folder(environ: Mapping[str, str], home: Path) -> Path:
    given = Path(environ.get("XDG_CONFIG_HOME", ""))
    # A relative one is to be ignored, says the specification.
    return given if given.is_absolute() else home / ".config"
