"""Write what each distribution imports as into its metadata, so that nothing has to read its list of files for it.

transformers and diffusers ask for the packages of every distribution when they are imported: 1.2 s of CPU time, once in
each process that imports transformers as it is, and twice in each that imports Megatron-Bridge. (What bridgepack itself
starts answers them without looking.) What they get is the same.

Usage: python name_packages.py      (in the environment; what has a `top_level.txt` stays as it is)
"""

import importlib.metadata
from pathlib import Path


def main() -> None:
    before = _packages()
    for distribution in importlib.metadata.distributions():
        if not distribution.read_text("top_level.txt"):
            names = sorted(importlib.metadata._top_level_inferred(distribution))  # type: ignore[attr-defined]
            folder = Path(str(distribution.locate_file(""))) / distribution._path.name
            (folder / "top_level.txt").write_text("".join(f"{name}\n" for name in names))
    assert _packages() == before


def _packages() -> dict[str, set[str]]:
    return {name: set(found) for name, found in importlib.metadata.packages_distributions().items()}


if __name__ == "__main__":
    main()
