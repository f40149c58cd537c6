"""Rules on multi-token prediction over packed rows."""

from __future__ import annotations

from bridgepack.rules.engine.rule import ERROR, WARNING, Found, change, rule, wrong
from bridgepack.rules.engine.subject import IS_PACKED, Run
from bridgepack.rules.run.kernel_facts import pads_between_sequences

_LAYERS = "model.mtp_num_layers"


@rule("BP803", ERROR, "PSB803; core/transformer/multi_token_prediction.py:238-268", when=IS_PACKED)
def prediction_labels_cross_sequences(run: Run) -> Found:
    """Multi-token prediction shifts labels at logical boundaries while padded sequences lie at physical ones.

    Why: Silent: after the first padded sequence the labels of the prediction layers belong to other tokens.
    Bad: mtp_num_layers 1, pad_seq_to_mult 4, packing on.
    Good: mtp_num_layers not set, pad_seq_to_mult 4, packing on.
    Fix: Set model.mtp_num_layers to None for fine-tuning.
    Evidence: read in the source of megatron-core 0.19.2; the host's documentation calls it unsupported; Megatron-LM
        #6205, #4495, #4494.
    """
    if run.num_mtp_layers > 0 and pads_between_sequences(run):
        is_laid_out = run.stated("model.pipeline_model_parallel_layout") is not None
        yield wrong(
            _LAYERS,
            f"{run.num_mtp_layers} with padded sequences",
            "None with packed rows",
            changes=() if is_laid_out else change(_LAYERS, None, "its labels are wrong over padded sequences"),
        )


@rule("BP804", WARNING, when=IS_PACKED, evidence="read in the source; Bridge #6103, #6105")
def prediction_trains_prompts(run: Run) -> Found:
    """Multi-token prediction layers are trained on prompts and padding: they never see the loss mask.

    Why: Silent: the host passes the model no loss mask, so the extra loss counts every token of the row; its
        documentation calls packed rows with these layers unsupported.
    Bad: mtp_num_layers 1, packing on.
    Good: mtp_num_layers not set, packing on.
    Fix: Set model.mtp_num_layers to None for fine-tuning.
    Source: PSB804, PSB803; bridge/training/gpt_step.py:432-437; core/transformer/multi_token_prediction.py:825
    """
    if run.num_mtp_layers > 0:
        is_laid_out = run.stated("model.pipeline_model_parallel_layout") is not None
        yield wrong(
            _LAYERS,
            f"{run.num_mtp_layers} with packed rows",
            "None with packed rows",
            changes=() if is_laid_out else change(_LAYERS, None, "its loss ignores the loss mask"),
        )


@rule("BP805", WARNING, "PSB805; core/transformer/multi_token_prediction.py:837-860", when=IS_PACKED)
def prediction_loss_under_context_parallelism(run: Run) -> Found:
    """Multi-token prediction is trained under context parallelism, where its loss is scaled wrongly.

    Why: Silent: the extra loss is divided by the tokens of one rank, not of the sequence.
    Bad: mtp_num_layers 1, context_parallel_size 2.
    Good: mtp_num_layers 1, context_parallel_size 1; or no prediction layers.
    Fix: Set model.mtp_num_layers to None for fine-tuning.
    Evidence: Megatron-LM #7498.
    """
    if run.num_mtp_layers > 0 and run.context_parallel_size > 1:
        allowed = "None, or context parallelism 1"
        yield wrong(_LAYERS, f"{run.num_mtp_layers} with context parallelism {run.context_parallel_size}", allowed)
