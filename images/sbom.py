"""Writes a CycloneDX bill of materials of the Python that runs it, and of the Debian packages below.

    RUNTIME/bin/python images/sbom.py --name pytorch --lock images/pytorch/requirements.txt \
        --horovod images/horovod/sdist.txt --out sbom.cdx.json

Standard library only: whatever lists an environment must not add to it. The same environment gives
the same bytes: no time, and a serial number made from the content.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import uuid
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

SPEC_VERSION = "1.6"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/trainyard")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")

# What CycloneDX calls a component; its keys are not ours to type.
Component = dict[str, Any]


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--name", required=True, help="the image's name")
    parser.add_argument("--lock", type=Path, required=True, help="the lock with the hashes")
    parser.add_argument("--horovod", type=Path, required=True, help="the pin of Horovod's sdist")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    pip = Path(__file__).with_name("pip.txt")
    locks = [each.read_text(encoding="utf-8") for each in (options.lock, pip)]
    wheels = read_hashes("".join(locks))
    sources = read_hashes(options.horovod.read_text(encoding="utf-8"))
    components = [describe(each, wheels, sources) for each in distributions()]
    components += debian_packages()
    bill = make_bill(options.name, components)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")


def read_hashes(lock: str) -> dict[tuple[str, str], list[str]]:
    """The sha256 of every file that a lock lets in, by normal name and version."""
    hashes: dict[tuple[str, str], list[str]] = {}
    at: list[str] = []
    for line in lock.splitlines():
        pin = PIN.match(line)
        if pin:
            at = hashes.setdefault((normal(pin["name"]), pin["version"]), [])
        at += HASH.findall(line)
    return hashes


def normal(name: str) -> str:
    """The one spelling of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def describe(
    distribution: Distribution,
    wheels: dict[tuple[str, str], list[str]],
    sources: dict[tuple[str, str], list[str]],
) -> Component:
    """One installed distribution.

    A lock admits several files of one version and an environment does not say which it was made
    from, so the hashes stand with the distribution's references, not as the component's own.
    """
    name, version = normal(distribution.metadata["Name"]), distribution.version
    purl = f"pkg:pypi/{name}@{quote(version)}"
    component: Component = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    licence = distribution.metadata.get("License-Expression")
    if licence:
        component["licenses"] = [{"expression": licence}]
    for kind, hashes in (("distribution", wheels), ("source-distribution", sources)):
        found = hashes.get((name, version))
        if found:
            component["externalReferences"] = [
                {
                    "type": kind,
                    "url": f"https://pypi.org/project/{name}/{quote(version)}/",
                    "comment": "the files that the lock admits",
                    "hashes": [{"alg": "SHA-256", "content": each} for each in sorted(set(found))],
                }
            ]
    return component


def debian_packages() -> list[Component]:
    """The packages of the distribution below; none where it is not Debian's family."""
    try:
        listed = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\t${Status}\n"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        release = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return []
    vendor = re.search(r"^ID=\"?(\w+)", release, re.MULTILINE)
    components: list[Component] = []
    for line in listed.splitlines():
        name, version, architecture, status = line.split("\t")
        if not status.endswith(" installed"):
            continue
        where = f"pkg:deb/{vendor[1] if vendor else 'debian'}/{quote(name)}@{quote(version)}"
        purl = f"{where}?arch={architecture}"
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
            }
        )
    return components


def make_bill(name: str, components: list[Component]) -> dict[str, Any]:
    """The whole document, sorted; its serial number says what it lists."""
    listed = sorted(components, key=lambda component: component["bom-ref"])
    content = json.dumps([name, listed], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": name, "name": name}},
        "components": listed,
    }


if __name__ == "__main__":
    main()
