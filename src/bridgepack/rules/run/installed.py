"""Rules on the installed versions: incompatible combinations and versions with known faults."""

from collections.abc import Callable, Mapping
from operator import attrgetter

from packaging.version import Version

from bridgepack.errors import ConfigError
from bridgepack.host import HostRelease, release_of
from bridgepack.rules.judging.context import CannotJudgeError, require, require_known_release
from bridgepack.rules.judging.environment import BRIDGE, CORE, ENGINE, is_in, version_of
from bridgepack.rules.judging.rule import ADVICE, ERROR, WARNING, Found, place, rule, wrong
from bridgepack.rules.judging.subject import PACKS_OFFLINE, Run


def installed_version(run: Run, name: str) -> Version | None:
    """Return the installed version of a distribution, or None if it is not installed.

    Raises:
        CannotJudgeError: no environment was given, or its version of the distribution cannot be parsed.
    """
    text = run.require_environment().versions.get(name)
    if text is None:
        return None
    return require(version_of(text), f"the environment has no valid version of {name}: {text!r}")


#: Distributions that replace another in images with their own builds.
_STAND_INS: Mapping[str, tuple[str, ...]] = {"triton": ("pytorch-triton", "triton-nightly"), "pillow": ("pillow-simd",)}


def _release(run: Run) -> HostRelease:
    """Return the installed release of megatron-bridge, or the one that the run is judged for.

    Raises:
        CannotJudgeError: it is newer than all that is known, or older than every supported one.
    """
    version = installed_version(run, BRIDGE)
    try:
        return run.release if version is None else require_known_release(release_of(str(version)))
    except ConfigError as error:
        raise CannotJudgeError(str(error)) from None


def _core_outside(run: Run, range_of: Callable[[HostRelease], str]) -> Found:
    """Yield a finding for a megatron-core outside the wanted versions; one that cannot work is reported once."""
    release, core = _release(run), installed_version(run, CORE)
    if core is None or is_in(core, range_of(release)):
        return
    if range_of is _works or is_in(core, release.core_works):
        allowed_values = f"{range_of(release)} for {release.name}".replace(".dev0", "")
        yield wrong(place(CORE), f"{core} with megatron-bridge {release.name}", allowed_values)


_works: Callable[[HostRelease], str] = attrgetter("core_works")
_release_range: Callable[[HostRelease], str] = attrgetter("core_released")


@rule("BP964", ERROR, "PSC404; bridge/data/packing/parquet.py:52-63", when=PACKS_OFFLINE)
def pyarrow_missing(run: Run) -> Found:
    """Packs are Parquet files, but pyarrow is missing or too old.

    Why: Crash while the dataset is built, on every rank: "pyarrow is required for packed Parquet datasets"; or, before
        pyarrow 16, when the first pack is read: "BYTE_STREAM_SPLIT only supports FLOAT and DOUBLE".
    Bad: offline packing, no pyarrow; it is an extra of megatron-bridge. Good: offline packing, pyarrow 19.0.1.
    Fix: Run `pip install "megatron-bridge[parquet]"`, or install pyarrow 16 or newer. Noticed: dataset build.
    Evidence: read in the source and metadata of 0.6.2; shards of format 3 read with pyarrow 14.0.2, 15.0.2 and 16.1.
    """
    version = installed_version(run, "pyarrow")
    if not is_in(version, ">=16"):
        yield wrong(place("pyarrow"), str(version or "not installed"), "16.0 or newer")


@rule("BP980", ERROR, "PSB719; bridge/training/utils/packed_seq_utils.py; wheel metadata of megatron-bridge 0.6.2")
def megatron_core_too_old(run: Run) -> Found:
    """megatron-core is too old for this release of megatron-bridge.

    Why: Crash on import or at the first step. A plain pip install chooses megatron-core 0.13.1 on a system with a glibc
        older than 2.39, because wheels of nvidia-resiliency-ext 0.5 and newer need glibc 2.39.
    Bad: megatron-bridge 0.6.2, megatron-core 0.13.1. Good: megatron-core 0.19.2.
    Fix: Install megatron-core 0.19.2; if pip falls back to an old one, install nvidia-resiliency-ext first.
    Noticed: import, or first step.
    Evidence: executed: the resolution to 0.13.1; the older limits are from the wheels' metadata.
    """
    yield from _core_outside(run, _works)


@rule("BP981", WARNING, "PSB719, PSC409; rule catalogue section 3", noticed="import, first step, or never")
def megatron_core_of_another_release(run: Run) -> Found:
    """megatron-core is not from the series that this release of megatron-bridge was released with.

    Why: Crash or silent: the two share private interfaces, and packs go through several of them.
    Bad: megatron-bridge 0.6.2, megatron-core 0.18.0 or 0.20.0. Good: megatron-core 0.19.2.
    Fix: Install the versions that were released together.
    Evidence: release notes and pins; the combinations were not executed.
    """
    yield from _core_outside(run, _release_range)


@rule("BP982", ERROR, "PSC404; megatron-core 0.19.2, extra dev", versions={CORE: ">=0.18"}, noticed="import")
def resiliency_extension_too_old(run: Run) -> Found:
    """nvidia-resiliency-ext is too old for megatron-core.

    Why: Crash on import: 0.4.1 is what pip falls back to on a system with a glibc older than 2.39.
    Bad: megatron-core 0.19.2, nvidia-resiliency-ext 0.4.1. Good: nvidia-resiliency-ext 0.6.0.
    Fix: Install 0.6.0; its wheel also runs on glibc 2.36 if pip gets the platform manylinux_2_39.
    Evidence: executed with 0.4.1, 0.6.0 and 0.7.0.
    """
    version = installed_version(run, "nvidia-resiliency-ext")
    if is_in(version, "<0.5"):
        yield wrong(place("nvidia-resiliency-ext"), str(version), "0.5 or newer")


@rule("BP983", ERROR, "PSC404; imports of megatron-bridge 0.6.2", noticed="import")
def package_missing(run: Run) -> Found:
    """A package that the host needs to start is not installed.

    Why: Crash on import of its recipes, its data or its training loop.
    Bad: an environment without nvidia-modelopt. Good: pip install "megatron-bridge[recipes,parquet]==0.6.2".
    Fix: Install the missing package in the version of megatron-core's extra `dev`.
    Evidence: executed: each was needed at import.
    """
    version = set(run.require_environment().versions)
    for name in _release(run).needs:
        if not version.intersection((name, *_STAND_INS.get(name, ()))):
            yield wrong(place(name), "not installed", "installed", group="packages")


@rule("BP984", ERROR, "PSB904; bridge/models/gpt_provider.py:111; core/transformer/dot_product_attention.py:153")
def transformer_engine_missing(run: Run) -> Found:
    """TransformerEngine is not installed, and only its attention supports packs.

    Why: Crash on import of the model's layers, or at the first packed step.
    Bad: no transformer-engine. Good: transformer-engine 2.17.1, its torch extension and its CUDA libraries.
    Fix: Run `pip install "transformer-engine[core_cu13,pytorch]==2.17.1"`.
    Noticed: import, or when the model is built. Evidence: read in 0.6.2; NVIDIA's images include it.
    """
    names = run.require_environment().versions
    if run.is_packed and not any(name.startswith("transformer-engine") for name in names):
        yield wrong(place(ENGINE), "not installed", "2.17.1, as released with megatron-bridge 0.6.2")


@rule("BP985", WARNING, "PSB904; transformer-engine on the package index", noticed="import")
def transformer_engine_incomplete(run: Run) -> Found:
    """The distribution transformer-engine is installed without its extension for torch or its CUDA libraries.

    Why: Crash on import: alone it is empty and raises RuntimeError; a build from source is complete without them.
    Bad: transformer-engine 2.17.1, no transformer-engine-torch. Good: with transformer-engine-torch and -cu13 2.17.1.
    Fix: Run `pip install "transformer-engine[core_cu13,pytorch]==2.17.1"`.
    Evidence: executed with the bare distribution.
    """
    version = installed_version(run, ENGINE)
    if version is None or version.local:
        return
    names = run.require_environment().versions
    missing = [] if "transformer-engine-torch" in names else ["transformer-engine-torch"]
    if not any(name.startswith("transformer-engine-cu") for name in names):
        missing.append("transformer-engine-cu12 or -cu13")
    if missing:
        yield wrong(place(ENGINE), f"{version} without {' and '.join(missing)}", "all three of one version")


@rule("BP986", WARNING, "PSC404; nemo-run 0.11.1", evidence="executed with nemo-run 0.11.1")
def leptonai_too_new(run: Run) -> Found:
    """The launcher nemo-run 0.11 cannot import this version of leptonai.

    Why: Crash on import of nemo_run, which launches runs; training without it is not affected.
    Bad: nemo-run 0.11.1, leptonai 0.28.0. Good: leptonai 0.27.3. Fix: Run `pip install "leptonai<=0.27.3"`.
    Noticed: import of nemo_run.
    """
    nemo_run, lepton = installed_version(run, "nemo-run"), installed_version(run, "leptonai")
    if is_in(nemo_run, "<0.12") and is_in(lepton, ">0.27.3"):
        yield wrong(place("leptonai"), f"{lepton} with nemo-run {nemo_run}", "up to 0.27.3")


@rule("BP987", WARNING, "PSC409; megatron-bridge 0.6.1 on the package index", evidence="the package index")
def yanked_release(run: Run) -> Found:
    """The installed release of megatron-bridge was withdrawn by its authors.

    Why: Crash or silent: its fault is not documented, and it cannot be installed again.
    Bad: megatron-bridge 0.6.1. Good: megatron-bridge 0.6.2. Fix: Run `pip install megatron-bridge==0.6.2`.
    """
    version = installed_version(run, BRIDGE)
    release = _release(run)
    if version is not None and str(version) in release.withdrawn:
        yield wrong(place(BRIDGE), str(version), release.bridge)


@rule("BP988", ERROR, noticed="installation, or import", evidence="the wheels' own metadata")
def python_not_supported(run: Run) -> Found:
    """This release of megatron-bridge cannot be installed for this version of Python.

    Why: Crash on import of syntax that an older Python does not know, if it can be installed at all.
    Bad: megatron-bridge 0.6.2 with Python 3.11. Good: megatron-bridge 0.6.2 with Python 3.12.
    Fix: Use Python 3.12. Source: PSC404; wheel metadata of megatron-bridge 0.6.2
    """
    python = require(run.require_environment().python, "the environment has no version of Python")
    bridge, allowed_values = installed_version(run, BRIDGE) or run.versions[BRIDGE], _release(run).python
    if not is_in(require(version_of(python), f"{python!r} is not a version of Python"), allowed_values):
        yield wrong(place("python"), f"{python} with megatron-bridge {bridge}", allowed_values)


@rule("BP989", WARNING, "PSC404; wheel metadata of megatron-bridge 0.6.2")
def transformers_out_of_range(run: Run) -> Found:
    """The version of transformers is outside the range that megatron-bridge allows.

    Why: Crash or silent: models, templates and tokenizers behave differently in other versions.
    Bad: megatron-bridge 0.6.2, transformers 4.57.1. Good: transformers 5.8.0.
    Fix: Run `pip install "transformers>=5.8,<=5.12.1"`.
    Noticed: import, or never. Evidence: the wheel's own metadata.
    """
    version, allowed_values = installed_version(run, "transformers"), _release(run).transformers
    if version is not None and not is_in(version, allowed_values):
        yield wrong(place("transformers"), str(version), allowed_values)


_TOKENIZER = "tokenizer.tokenizer_model"


@rule("BP976", WARNING, "PSB501; transformers 5.12, tokenizer of DeepSeek-V3")
def tokenizer_drops_spaces(run: Run) -> Found:
    """This version of transformers loads the tokenizer of DeepSeek-V3 as a Llama tokenizer.

    Why: Silent: every space is lost, so the model is trained on words run together.
    Bad: transformers 5.12.1, tokenizer_model deepseek-ai/DeepSeek-V3. Good: transformers 5.8.0.
    Fix: Encode and decode one text with this version before packing; use another version of transformers.
    Evidence: executed with transformers 5.12.
    """
    model = run.stated_value(_TOKENIZER)
    if "deepseek-v3" not in str(model or "").lower().replace("_", "-"):
        return
    version = installed_version(run, "transformers")
    if is_in(version, ">=5.12"):
        yield wrong(_TOKENIZER, f"{model} with transformers {version}", "a version that keeps spaces")


@rule("BP977", WARNING, "PSC409; rule catalogue section 3", evidence="by definition")
def environment_of_another_target(run: Run) -> Found:
    """The release of megatron-bridge in the environment differs from the one that the run is judged for.

    Why: Silent: rules that differ between releases judge for a release that the run will not use.
    Bad: --bridge-version 0.6.2, an environment with megatron-bridge 0.7.0. Good: no --bridge-version.
    Fix: Omit --bridge-version, or give the environment that the run will use.
    """
    version, target = installed_version(run, BRIDGE), run.versions[BRIDGE]
    if version is not None and version.release[:2] != target.release[:2]:
        yield wrong(place(BRIDGE), f"{version} installed", f"{target}, which the run is judged for")


@rule("BP978", ADVICE, evidence="executed without a GPU; a listing of versions does not show where a wheel came from")
def core_without_makefile(run: Run) -> Found:
    """megatron-core comes from the package index, whose wheel lacks the Makefile that the host runs at start.

    Why: Crash at start: make fails in megatron/core/datasets, and the host exits with 1; a source build has it.
    Bad: megatron-core 0.19.2 from the package index. Good: megatron-core from a checkout.
    Fix: Put a Makefile with an empty default target into megatron/core/datasets; the compiled helper is in the wheel.
    Noticed: start of training. Source: PSC409; core/datasets/utils.py:20-30; bridge/training/initialize.py:141-153
    """
    version = installed_version(run, CORE)
    if version is not None and not version.local and not version.is_prerelease:
        yield wrong(place(CORE), f"{version} from the package index", "a Makefile beside it")


@rule("BP979", WARNING, "PSB704; megatron-bridge 0.3.1, pyproject.toml; rule catalogue section 3")
def transformer_engine_too_old(run: Run) -> Found:
    """TransformerEngine is older than the one of any release of megatron-bridge that packs sequences.

    Why: Crash at the first step, or silent: attention over packs was fixed in nearly every release since.
    Bad: transformer-engine 2.4.0. Good: transformer-engine 2.17.1.
    Fix: Run `pip install "transformer-engine[core_cu13,pytorch]==2.17.1"`.
    Noticed: first step, or never. Evidence: pins of megatron-bridge 0.3.1 (2.10 up to 2.13) and later releases.
    """
    version = installed_version(run, ENGINE)
    if is_in(version, "<2.10"):
        yield wrong(place(ENGINE), str(version), "2.10 or newer; 2.17.1 with megatron-bridge 0.6")
