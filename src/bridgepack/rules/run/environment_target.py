"""Rules on the installed versions beside what the run is judged for: tokenizer, helpers, engine, the target itself."""

from __future__ import annotations

from bridgepack.rules.engine.environment import BRIDGE, CORE, ENGINE
from bridgepack.rules.engine.rule import ADVICE, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.run.installed import installed_version, is_in

_TOKENIZER = "tokenizer.tokenizer_model"


@rule("BP976", WARNING, "PSB501; transformers 5.12, tokenizer of DeepSeek-V3")
def tokenizer_drops_spaces(run: Run) -> Found:
    """The tokenizer of DeepSeek-V3 is loaded by a version of transformers that takes it for a Llama tokenizer.

    Why: Silent: every space is lost, so the model is trained on words run together.
    Bad: transformers 5.12.1, tokenizer_model deepseek-ai/DeepSeek-V3.
    Good: transformers 5.8.0, and a text that comes back unchanged after encoding and decoding.
    Fix: Encode and decode one text with this version before packing; take another version of transformers.
    Evidence: executed with transformers 5.12.
    """
    model = run.stated(_TOKENIZER)
    name = str(model or "").lower().replace("_", "-")
    version = installed_version(run, "transformers") if "deepseek-v3" in name else None
    if is_in(version, ">=5.12"):
        yield wrong(_TOKENIZER, f"{model} with transformers {version}", "a version that keeps spaces")


@rule("BP977", WARNING, "PSC409; rule catalogue section 3", evidence="by definition")
def environment_of_another_target(run: Run) -> Found:
    """The environment has another release of megatron-bridge than the run is judged for.

    Why: Silent: rules that differ between releases judge a run that will never be.
    Bad: --bridge-version 0.6.2, an environment with megatron-bridge 0.5.1.
    Good: an environment with megatron-bridge 0.6.2 and no --bridge-version.
    Fix: Leave --bridge-version out, or give the environment that the run will use.
    """
    version, target = installed_version(run, BRIDGE), run.versions[BRIDGE]
    if version is not None and version.release[:2] != target.release[:2]:
        yield wrong(BRIDGE, f"{version} installed", f"{target}, which the run is judged for")


@rule("BP978", ADVICE, "PSC409; core/datasets/utils.py:20-30; bridge/training/initialize.py:141-153")
def core_without_makefile(run: Run) -> Found:
    """megatron-core comes from the package index, whose wheel lacks the Makefile that the host runs at the start.

    Why: Crash at start: make fails in megatron/core/datasets, and the host exits with 1; a build from source is whole.
    Bad: megatron-core 0.19.2 from the package index.
    Good: megatron-core from a checkout, or with a Makefile put into megatron/core/datasets.
    Fix: Put a Makefile with an empty default target there; the compiled helper is in the wheel.
    Noticed: start of training.
    Evidence: executed without a GPU; a listing of versions does not tell where a wheel came from.
    """
    version = installed_version(run, CORE)
    if version is not None and not version.local and not version.is_prerelease:
        yield wrong(CORE, f"{version}, as the package index has it", "a Makefile beside it")


@rule("BP979", WARNING, "PSB704; megatron-bridge 0.3.1, pyproject.toml; rule catalogue section 3")
def transformer_engine_too_old(run: Run) -> Found:
    """TransformerEngine is older than every release of megatron-bridge that packs rows was made with.

    Why: Crash at the first step, or silent: attention over packed rows was mended in nearly every release since.
    Bad: transformer-engine 2.4.0.
    Good: transformer-engine 2.17.1 with megatron-bridge 0.6.2.
    Fix: pip install "transformer-engine[core_cu13,pytorch]==2.17.1"
    Noticed: first step, or never.
    Evidence: pins of megatron-bridge 0.3.1 (2.10 up to 2.13) and later releases.
    """
    version = installed_version(run, ENGINE)
    if is_in(version, "<2.10"):
        yield wrong(ENGINE, str(version), "2.10 or newer; 2.17.1 with megatron-bridge 0.6")
