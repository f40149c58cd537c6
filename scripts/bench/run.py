#!/usr/bin/env python3
"""Measures bridgepack, of one checkout or of several, against the real Megatron-Bridge; writes run.md and run.json.

Every measurement is a fresh process; all take turns, every other round backwards, so that a slow minute of the machine
falls on all of them. The exit code is 1 where two sides did not do the same work, never because of time.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
PARTS = ("plan", "write", "read", "check", "build")
#: Rows that are drawn in random order: of upstream's files each takes a whole row group.
NUM_RANDOM = {"upstream": 200, "bridgepack": 2000}


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Who does a piece of work: a function of sides.py or upstream.py, called in a process of its own."""

    work: str
    num: int
    who: str
    variant: str
    role: str
    function: str
    given: dict[str, Any]
    tree: Path


def options_of(arguments: list[str]) -> argparse.Namespace:
    """Return the options; paths are absolute."""
    parser = argparse.ArgumentParser(prog="run.py", description=__doc__)
    add, cores = parser.add_argument, len(os.sched_getaffinity(0))
    add("--tree", nargs="+", type=_tree, metavar="NAME=PATH", help="checkouts to compare (default: this one)")
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure (default: everything)")
    add("--repeats", type=_positive, default=3, metavar="N", help="measurements of each (default: 3)")
    add("--limit", type=float, default=3600.0, metavar="S", help="seconds after which one is ended (default: 3600)")
    add("--lengths", type=_positive, nargs="+", default=[100_000, 1_000_000], metavar="N", help="to plan")
    add("--sequences", type=_positive, nargs="+", default=[20_000, 200_000], metavar="N", help="to write, read, check")
    add("--chats", type=_positive, nargs="+", default=[10_000, 100_000], metavar="N", help="to build from")
    add("--upstream-rows", type=int, default=10_000, metavar="N", help="upstream builds no more (default: 10000)")
    add("--without-upstream", action="store_true", help="compare the checkouts alone")
    add("--workers", type=_positive, default=cores, metavar="N", help="processes of bridgepack (default: the cores)")
    add("--gsm8k", type=_path, help="GSM8K's train.jsonl, for every other chat; the rest is text of installed packages")
    add("--tokenizer", type=_path, help="its folder (default: a small one, trained on docstrings)")
    add("--output", type=_path, default=_path("artifacts/bench"), help="gets run.md and run.json (artifacts/bench)")
    add("--python", type=_path, help="interpreter (default: the environment of scripts/test, made where it is missing)")
    options = parser.parse_args(arguments)
    options.tree = dict(options.tree or [("bridgepack", ROOT)])
    return options


def _tree(text: str) -> tuple[str, Path]:
    name, _, path = text.rpartition("=")
    if not name or not (Path(path) / "src" / "bridgepack").is_dir():
        raise argparse.ArgumentTypeError(f"{text}; it must be NAME=PATH, a checkout with src/bridgepack")
    return name, Path(path).resolve()


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}; it must be 1 or more")
    return int(text)


def _path(text: str) -> Path:
    return Path(text).absolute()


class Work:
    """Prepares the inputs of the parts that were chosen, and says who does what."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self.options, self.scratch = options, scratch
        self.tokenizer = options.tokenizer or self._examples() / "tokenizer"
        self.inputs, self.sides = importlib.import_module("inputs"), importlib.import_module("sides")

    def contenders(self) -> Iterator[Contender]:
        """Yield everyone, upstream first."""
        for part in self.options.parts:
            for one in getattr(self, f"_{part}")():
                if one.role != "upstream" or not self.options.without_upstream:
                    yield one

    def _of(self, work: str, num: int, role: str, function: str, who: str = "", **given: Any) -> Iterator[Contender]:
        """Yield one, or one for each checkout where it is bridgepack."""
        trees = self.options.tree if role == "bridgepack" else {role: next(iter(self.options.tree.values()))}
        for name, tree in trees.items():
            own = {key: value[name] if isinstance(value, dict) else value for key, value in given.items()}
            about = {"who": f"{name} {who}".strip(), "variant": who, "role": role}
            yield Contender(work=work, num=num, function=function, given=own, tree=tree, **about)

    def _plan(self) -> Iterator[Contender]:
        for num in self.options.lengths:
            for kind, size in (("A", 4096), ("A", 8192), ("B", 32768)):
                path = self.scratch / f"lengths-{kind}-{num}.npy"
                importlib.import_module("numpy").save(path, self.inputs.draw_lengths(kind, num))
                work, given = f"plan {num:,} lengths {kind}, packs of {size:,}", {"lengths": str(path), "size": size}
                for algorithm in ("first_fit_shuffle", "first_fit_decreasing"):
                    yield from self._of(work, num, "upstream", "upstream_plan", algorithm, algorithm=algorithm, **given)
                for package in filter(find_spec, ("seqpacker", "lightbinpack")):
                    yield from self._of(work, num, "peer", "upstream_peer", package, package=package, **given)
                yield from self._of(work, num, "bridgepack", "plan", **given)

    def _write(self) -> Iterator[Contender]:
        for num in self.options.sequences:
            work, output = f"write {num:,} sequences", str(self.scratch / "written")
            rows = {"rows": str(self._rows(num)), "output": output}
            yield from self._of(work, num, "upstream", "upstream_write", **rows)
            yield from self._of(work, num, "floor", "write_and_sync", "bytes and fsync", **rows)
            for count in sorted({1, self.options.workers}):
                given = {"artifact": self._artifacts(num), "output": output, "workers": count}
                yield from self._of(work, num, "bridgepack", "write", f"{count} at once", **given)

    def _read(self) -> Iterator[Contender]:
        for num in self.options.sequences:
            work, artifacts = f"read packs of {num:,} sequences", self._artifacts(num)
            rewritten, first = str(self.scratch / "upstream.idx.parquet"), next(iter(artifacts.values()))
            given = {"path": first, "rewritten": rewritten, "num_random": NUM_RANDOM["upstream"]}
            yield from self._of(work, 1, "upstream", "upstream_read", "file", **given)
            ours = {"path": artifacts, "num_random": NUM_RANDOM["bridgepack"]}
            yield from self._of(work, 1, "bridgepack", "upstream_read", "artifact", **ours)

    def _check(self) -> Iterator[Contender]:
        for num in self.options.sequences:
            work, artifacts = f"check packs of {num:,} sequences", self._artifacts(num)
            given = {"artifact": next(iter(artifacts.values()))}
            yield from self._of(work, num, "floor", "read_and_hash", "decoding and hashing", **given)
            yield from self._of(work, num, "bridgepack", "check", artifact=artifacts, workers=self.options.workers)

    def _build(self) -> Iterator[Contender]:
        for num in self.options.chats:
            data = self.scratch / f"chats-{num}.jsonl"
            self.inputs.write_chats(data, num, self.options.gsm8k)
            given = {"data": str(data), "tokenizer": str(self.tokenizer), "output": str(self.scratch / "built")}
            work = f"build and check {num:,} chats"
            if num <= self.options.upstream_rows:
                for count in (1, 2):
                    who = f"{count} at once"
                    yield from self._of(work, num, "upstream", "upstream_build", who, workers=count, **given)
            for engine in ("auto", "tokenizers"):
                own = {**given, "engine": engine, "workers": self.options.workers}
                yield from self._of(work, num, "bridgepack", "build", engine, **own)

    def _rows(self, num: int) -> Path:
        path = self.scratch / f"sequences-{num}.parquet"
        if not path.exists():
            self.inputs.write_tokenised(path, num, self.tokenizer)
        return path

    def _artifacts(self, num: int) -> dict[str, str]:
        """Return checkout -> its artifact of tokenised rows, and its token store beside it."""
        found = {}
        for name, tree in self.options.tree.items():
            folder = self.scratch / f"artifacts-{name}"
            folder.mkdir(exist_ok=True)
            found[name] = str(folder / f"packs-{num}")
            if not Path(found[name]).exists():
                values = self.sides.recipe(str(self._rows(num)), str(self.tokenizer), kind="tokenized")
                recipe = folder / f"packs-{num}.yaml"
                recipe.write_text(json.dumps(values), encoding="utf-8")
                self._command(tree, "bridgepack.cli", "build", str(recipe), "--output", found[name])
        return found

    def _examples(self) -> Path:
        folder = self.scratch / "examples"
        self._command(next(iter(self.options.tree.values())), "bridgepack.examples", str(folder), "--limit", "3000")
        return folder

    def _command(self, tree: Path, module: str, *arguments: str) -> None:
        code = f"from {module}{'' if module.endswith('cli') else '.__main__'} import main; main()"
        command = [sys.executable, "-c", code, *arguments]
        subprocess.run(command, env=environment(tree), check=True, stdout=sys.stderr)


def environment(tree: Path) -> dict[str, str]:
    """Return the variables of a process that runs a checkout."""
    return {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{HERE}", "HF_HUB_OFFLINE": "1"}


def measured(contender: Contender, scratch: Path, limit_s: float) -> dict[str, Any]:
    """Return what a contender took."""
    measure = importlib.import_module("measuring").measure
    result = scratch / "result.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "sides.py"), contender.function, json.dumps(contender.given), str(result)]
    usage = measure(command, log=scratch / "log.txt", environment=environment(contender.tree), limit_s=limit_s)
    about = {name: getattr(contender, name) for name in ("work", "who", "variant", "role", "num")}
    taken = {**about, **usage, **(json.loads(result.read_text()) if usage["is_finished"] else {})}
    print(f"{contender.work}: {contender.who}: {taken.get('seconds', limit_s):.3f} s", file=sys.stderr, flush=True)
    return taken


def main(arguments: list[str]) -> int:
    """Measure, write both files, print the table."""
    options, report = options_of(arguments), importlib.import_module("report")
    measurements, loads = [], [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="bridgepack-bench-") as folder:
        scratch = Path(folder)
        everyone = list(Work(options, scratch).contenders())
        for number in range(options.repeats):
            for one in everyone if number % 2 == 0 else reversed(everyone):
                measurements.append(measured(one, scratch, options.limit))
            loads.append(os.getloadavg()[0])
    findings = report.findings_of(measurements)
    complaints = report.complaints_of(findings)
    commits = {name: report.commit_of(tree) for name, tree in options.tree.items()}
    about = {"machine": report.machine(), "commits": commits, "load_averages": loads, "complaints": complaints}
    trees = ", ".join(f"{name} {commit}" for name, commit in commits.items())
    text = f"{about['machine']} Load average: {', '.join(f'{load:.1f}' for load in loads)}. {trees}.\n\n"
    text += report.table_of(findings) + "".join(f"\n**Wrong:** {one}\n" for one in complaints)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "run.json").write_text(json.dumps({**about, "measurements": measurements}, indent=1) + "\n")
    (options.output / "run.md").write_text(text)
    print(text, end="")
    return int(bool(complaints))


if __name__ == "__main__":
    chosen = options_of(sys.argv[1:])
    python = chosen.python or ROOT / ".venv-test" / "bin" / "python"
    if Path(sys.executable).absolute() != python:
        if chosen.python is None:
            subprocess.run(["bash", str(ROOT / "tests/environment/install"), str(ROOT / ".venv-test")], check=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    sys.exit(main(sys.argv[1:]))
