"""Stand-in CUDA libraries, so that the CUDA build of torch imports without gigabytes of nvidia wheels.

The dynamic linker refuses to load torch while a library, a symbol version or a symbol is missing. One shared object
that defines every symbol torch looks for, each under its version, linked under each library's name, satisfies it.
A call into it stops the process: nothing here computes. libcudart stays the real one (it is small), and libcuda
belongs to the driver.

Usage: python cuda_stubs.py SITE_PACKAGES     (needs gcc and readelf)
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

STAND_IN_NAME = "libcuda_stand_in.so"
_REPLACED_LIBRARY = re.compile(r"^lib(?!cudart\.|cuda\.)(cu|nv|nccl)\w*\.so\.\d+$")
_UNVERSIONED_SYMBOL = re.compile(r"^(nccl|cusparseLt|cuFile|curand|nvshmem)\w+$")


def write_stubs(torch_lib: Path) -> None:
    """Put the stand-in into `torch_lib`, and a link to it under each library's name."""
    libraries = [path for path in sorted(torch_lib.glob("lib*.so")) if path.name != "libcaffe2_nvrtc.so"]
    names = sorted({name for library in libraries for name in _needed_libraries(library)})
    symbols: dict[str, set[str]] = defaultdict(set)
    for library in libraries:
        for version in _needed_versions(library):
            symbols[version] |= set()
        for symbol, version in _undefined_symbols(library):
            symbols[version].add(symbol)
    _compile(torch_lib / STAND_IN_NAME, {version: sorted(symbols[version]) for version in sorted(symbols)})
    for name in names:
        (torch_lib / name).unlink(missing_ok=True)
        (torch_lib / name).symlink_to(STAND_IN_NAME)


def _needed_libraries(library: Path) -> Iterator[str]:
    for name in re.findall(r"\(NEEDED\).*\[(.+?)\]", _readelf("--dynamic", library)):
        if _REPLACED_LIBRARY.match(name):
            yield name


def _needed_versions(library: Path) -> Iterator[str]:
    """Yield the symbol versions `library` requires of the replaced libraries."""
    required_of = ""
    for line in _readelf("--version-info", library).splitlines():
        if found := re.search(r"\bFile: (\S+)", line):
            required_of = found[1]
        elif (found := re.search(r"\bName: (\S+)\s+Flags", line)) and _REPLACED_LIBRARY.match(required_of):
            yield found[1]


def _undefined_symbols(library: Path) -> Iterator[tuple[str, str]]:
    """Yield (symbol, version or "") of what `library` expects the replaced libraries to define."""
    versions = set(_needed_versions(library))
    for symbol in re.findall(r"\bUND (\S+)", _readelf("--dyn-syms", library)):
        name, _, version = symbol.replace("@@", "@").partition("@")
        if version in versions or (not version and _UNVERSIONED_SYMBOL.match(name)):
            yield name, version


def _compile(target: Path, symbols: dict[str, list[str]]) -> None:
    """Write a shared object that defines the symbols under their versions; "" is no version."""
    source = "".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for names in symbols.values() for name in names)
    versions = "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in names)} }};\n"
        for version, names in symbols.items()
        if version
    )
    with tempfile.TemporaryDirectory() as folder:
        source_path, version_path = Path(folder, "stand_in.c"), Path(folder, "stand_in.map")
        source_path.write_text(source)
        version_path.write_text(versions)
        options = ["-shared", "-fPIC", "-w", "-nostdlib", f"-Wl,--version-script={version_path}"]
        subprocess.run(["gcc", *options, "-o", str(target), str(source_path)], check=True)


def _readelf(what: str, library: Path) -> str:
    return subprocess.run(["readelf", "-W", what, library], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    write_stubs(Path(sys.argv[1], "torch", "lib"))
