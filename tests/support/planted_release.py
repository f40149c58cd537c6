"""A release of Megatron-Bridge that does not exist, and a copy of bridgepack with the one file that says what it does.

It is the installed host in another package, with two renamed fields, one that no facts record, one other default and
one other habit.

Docs promise that a new release is one file, its JSON and its name in RELEASES; this is the proof.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import bridgepack
from bridgepack.host import RELEASES, release_of
from bridgepack.host.roots import CANONICAL
from tests.support import host_forks
from tests.support.installed_host import host_version

#: The release after the newest.
NAME = f"0.{int(RELEASES[-1].name.partition('.')[2]) + 1}"
VERSION, STEM = f"{NAME}.0", f"v{NAME.replace('.', '')}"
#: Name of a field in the installed host, and in the planted one.
OLD_NAME, NEW_NAME = "pad_seq_to_mult", "sequence_multiple"
OLD_SWITCH, NEW_SWITCH = "enable_offline_packing", "packs_offline"
_NEW_NAMES = {OLD_NAME: NEW_NAME, OLD_SWITCH: NEW_SWITCH}
#: Package of the planted host.
ROOT = "planted_host.sft"
#: A field of `GPTSFTDatasetConfig` that only the planted host has, and no facts record.
NEW_FIELD = "enable_in_batch_packing"
#: Default of `GPTSFTDatasetConfig.seed` in both.
OLD_SEED, NEW_SEED = 1234, 4321
#: The line of the collate that clears the mask of labels after an EOS, which the planted host does not have.
CLEARED = "        loss_mask[tokens == self.tokenizer.eos_id] = 0\n"
PROJECT = Path(__file__).parents[2]

_RELEASE = '''"""Megatron-Bridge {name}: what it does otherwise."""

from dataclasses import replace
from pathlib import Path

from bridgepack.host.{base} import {base_name}

{constant} = replace(
    {base_name},
    name="{name}",
    versions="~={name}.0",
    bridge="{version}",
    root="{root}",
    bases=Path(__file__).with_name("bases_{stem}.json"),
    renames={{
        **{base_name}.renames,
        "dataset.offline_packing_specs.{old}": "dataset.offline_packing_specs.{new}",
        "dataset.{old_switch}": "dataset.{new_switch}",
    }},
    trains_after_eos=True,
)
'''


@dataclass(frozen=True, kw_only=True, slots=True)
class Planted:
    """Folders that stand first on the path of a process."""

    bridgepack: Path  #: with the copy of bridgepack
    host: Path  #: with the planted host, and what makes forks of the processes that ask it

    def run(self, *words: object, folder: Path, has_host: bool = False) -> subprocess.CompletedProcess[str]:
        """Run `-m MODULE` or a script in a folder, over the copy of bridgepack; over the planted host in a fork."""
        places = {"HF_HOME": str(folder / "hf-home"), "XDG_CACHE_HOME": str(folder)}
        if has_host:
            return self._run_forked([*map(str, words)], folder, {**os.environ, **self.variables(), **places})
        paths = os.pathsep.join(map(str, [self.bridgepack, PROJECT, *filter(None, sys.path)]))
        return subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths, **places},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def variables(self) -> dict[str, str]:
        """Return those of forks of a process that has both first on its path and the planted host imported."""
        return {host_forks.FIRST: os.pathsep.join(map(str, (self.bridgepack, self.host)))}

    def _run_forked(
        self, words: list[str], folder: Path, variables: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        module, *arguments = words[1:] if words[0] == "-m" else ["tests.support.forked_script", *words]
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            outputs = (output.fileno(), errors.fileno())
            code = host_forks.run_forked(module, arguments, variables, outputs, folder=folder, limit_s=400)
            for file in (output, errors):
                file.seek(0)
            return subprocess.CompletedProcess(words, code, output.read(), errors.read())


def plant(folder: Path) -> Planted:
    """Write both into a folder."""
    planted = Planted(bridgepack=_copy_of_bridgepack(folder / "src"), host=_host(folder / "host"))
    host_forks.write_site(planted.host)
    return planted


def _copy_of_bridgepack(folder: Path) -> Path:
    package = folder / "bridgepack"
    source = Path(bridgepack.__file__).parent
    shutil.copytree(source, package)
    base = release_of(host_version())
    stem = f"v{base.name.replace('.', '')}"
    room = package / "host"
    names = {"name": NAME, "version": VERSION, "stem": STEM, "constant": STEM.upper(), "root": ROOT}
    names |= {"old": OLD_NAME, "new": NEW_NAME, "old_switch": OLD_SWITCH, "new_switch": NEW_SWITCH}
    text = _RELEASE.format(base=stem, base_name=stem.upper(), **names)
    (room / f"{STEM}.py").write_text(text, encoding="utf-8")
    facts = json.loads(_renamed(base.bases.read_text(encoding="utf-8")))
    for name in ("GPTSFTDatasetConfig", "FinetuningDatasetConfig"):
        facts["defaults"][name]["seed"] = NEW_SEED
    (room / f"bases_{STEM}.json").write_text(json.dumps(facts), encoding="utf-8")
    for table in (room / "model_fields.json", room / "adapter_placements.json"):
        content = json.loads(table.read_text(encoding="utf-8"))
        table.write_text(json.dumps({**content, NAME: content[base.name]}), encoding="utf-8")
    listed = (room / "__init__.py").read_text(encoding="utf-8")
    listed = re.sub(r"^RELEASES = \((.*)\)$", rf"RELEASES = (\1, {STEM.upper()})", listed, flags=re.MULTILINE)
    mark = "\n#: The supported releases"
    listed = listed.replace(mark, f"from bridgepack.host.{STEM} import {STEM.upper()}\n{mark}")
    (room / "__init__.py").write_text(listed, encoding="utf-8")
    return folder


def _host(folder: Path) -> Path:
    found = find_spec(CANONICAL)
    assert found is not None
    assert found.submodule_search_locations
    source = Path(found.submodule_search_locations[0])
    package = folder / ROOT.replace(".", "/")
    shutil.copytree(source, package)  # with its bytecode, which holds where a file is not changed below
    old = folder / CANONICAL.replace(".", "/") / "__init__.py"
    old.parent.mkdir(parents=True)
    old.write_text(f"raise ModuleNotFoundError('No module named {CANONICAL}', name='{CANONICAL}')\n", encoding="utf-8")
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if (renamed := re.sub(rf"\b{re.escape(CANONICAL)}\b", ROOT, _renamed(text))) != text:
            path.write_text(renamed, encoding="utf-8")
    builder, seed = package / "data" / "builders" / "gpt_sft.py", f"seed: int = {NEW_SEED}"
    _change(builder, f"seed: int = {OLD_SEED}", seed)
    _change(builder, f"    {seed}\n", f"    {seed}\n    {NEW_FIELD}: bool = False\n")
    _change(package / "data" / "packing" / "gpt_sft.py", CLEARED, "")
    names = package / "utils" / "instantiate_utils.py"
    _change(names, '    "megatron.",\n', f'    "megatron.",\n    "{ROOT}.",\n')
    numbers = package / "package_info.py"
    for name, number in zip(("MAJOR", "MINOR", "PATCH"), VERSION.split("."), strict=True):
        text = re.sub(rf"^{name} = \d+$", f"{name} = {number}", numbers.read_text(), flags=re.MULTILINE)
        numbers.write_text(text, encoding="utf-8")
    metadata = folder / f"megatron_bridge-{VERSION}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: megatron-bridge\nVersion: {VERSION}\n")
    return folder


def _renamed(text: str) -> str:
    return re.sub(rf"\b({'|'.join(_NEW_NAMES)})\b", lambda name: _NEW_NAMES[name[1]], text)


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{path.name} has no {old!r}"
    path.write_text(text.replace(old, new), encoding="utf-8")
