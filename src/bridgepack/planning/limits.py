"""What a model's class, its heads and the kind of GPU leave of the layouts."""

from dataclasses import dataclass, replace

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.planning.layout import Layout
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.kernels.heads import LARGEST_HEAD, largest_head
from bridgepack.rules.run.models.vision_language import text_packs
from bridgepack.rules.run.reading import uses_engine_attention

#: Beginning of a GPU's name -> largest head whose attention is trained over padded sequences; 256 for others.
#: Source: TransformerEngine 2.17.1, common/fused_attn/fused_attn.cpp:317-339,402: packs from compute capability
#: 9.0 on, heads above 128 there alone; FlashAttention takes no padding but version 3, which is Hopper's.
_PADDED_HEADS = {"a100": 0, "b200": 128, "gb200": 128, "b300": 128, "gb300": 128}
#: Heads of queries and values that the fused kernel also takes on Blackwell.
_LATENT_HEAD = 192


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Layouts that a model cannot be trained in, beside those that rules refuse."""

    has_one_context: bool = False  #: no context parallelism
    keeps_rows: bool = False  #: tensor-parallel ranks keep whole rows: no sequence parallelism
    takes_one_pack: bool = False  #: a data-parallel rank takes one pack a step
    is_mixture: bool = False  #: a model with experts, where tensor parallelism needs sequence parallelism
    because: str = ""  #: what limits them, for messages

    def left_of(self, layout: Layout) -> Layout | None:
        """Return a layout, without sequence parallelism where that has to go; None if the model cannot have it."""
        if self.has_one_context and layout.context > 1:
            return None
        if not self.keeps_rows or layout.tensor == 1:
            return layout
        return None if self.is_mixture else replace(layout, splits_sequence=False)


def limits_of(recipe: SFTRecipe, gpu_name: str = "") -> Limits:
    """Return the limits of a recipe's model; the GPU's name as `plan --gpu` takes it, or empty if it is not known."""
    versions = target_versions(recipe.bridge_version)
    config = config_of_recipe(recipe.override({"artifact": None}))
    run = Run(config=config, versions=versions)
    try:
        facts = text_packs(run)
    except CannotJudgeError:
        facts = None
    is_unpadded = _has_no_kernel_for_padding(run, gpu_name)
    restriction = "no context parallelism" + (
        " or padding of sequences" if is_unpadded or (facts and facts.empty) else ""
    )
    subject = (
        "its heads on this GPU" if is_unpadded else "its class" if facts and (facts.context or facts.empty) else ""
    )
    return Limits(
        has_one_context=is_unpadded or bool(facts and facts.context),
        keeps_rows=is_unpadded or bool(facts and (facts.empty or facts.tensor)),
        takes_one_pack=bool(facts and facts.empty),
        is_mixture=bool(run.stated_value("model.num_moe_experts")),
        because=subject and f"{subject} {'take' if is_unpadded else 'takes'} {restriction}",
    )


def _has_no_kernel_for_padding(run: Run, gpu_name: str) -> bool:
    largest = _PADDED_HEADS.get(gpu_name.partition("-")[0], LARGEST_HEAD)
    try:
        if not uses_engine_attention(run):
            return False
        is_latent, (_, head) = run.stated_value("model.multi_latent_attention"), largest_head(run)
    except CannotJudgeError:
        return False
    return head > (max(largest, _LATENT_HEAD) if is_latent and largest else largest)
