"""Texts that open and close a turn in the families of chat templates that Megatron-Bridge knows."""

from bridgepack.config.recipe.assistant_markers import AssistantMarkers

_ROLES = ("system", "developer", "user", "tool")

#: Texts that identify the templates of a family, and its markers, in the order in which families are tried.
#: Source: megatron-bridge 0.6.2, data/conversation_processing.py, infer_assistant_mask_boundary_config: ChatML, Kimi,
#: Gemma 4, Gemma 1-3, Llama 3, gpt-oss (Harmony); and of 0.7, GLM-5.2, the first, and MiniMax-M3, the last.
FAMILIES = (
    (
        ("<|assistant|>", "clear_thinking", "<think>"),
        AssistantMarkers(
            assistant_start="<|assistant|>",
            learns_no_end=True,
            other_role_starts={"system": "<|system|>", "user": "<|user|>", "tool": "<|observation|>"},
        ),
    ),
    (
        ("<|im_start|>assistant", "<|im_end|>"),
        AssistantMarkers(
            assistant_start="<|im_start|>assistant\n",
            assistant_end="<|im_end|>\n",
            assistant_end_fallbacks=("<|im_end|>",),
            other_role_starts={role: f"<|im_start|>{role}\n" for role in _ROLES},
        ),
    ),
    (
        ("<|im_assistant|>", "<|im_user|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"),
        AssistantMarkers(
            assistant_start="<|im_assistant|>assistant<|im_middle|>",
            assistant_end="<|im_end|>",
            other_role_starts={role: f"<|im_{role}|>{role}<|im_middle|>" for role in ("system", "user")},
        ),
    ),
    (("<|turn>model", "<turn|>"), AssistantMarkers(assistant_start="<|turn>model\n", assistant_end="<turn|>")),
    (
        ("<start_of_turn>model", "<end_of_turn>"),
        AssistantMarkers(assistant_start="<start_of_turn>model\n", assistant_end="<end_of_turn>"),
    ),
    (
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        AssistantMarkers(
            assistant_start="<|start_header_id|>assistant<|end_header_id|>\n\n",
            assistant_end="<|eot_id|>",
            other_role_starts={role: f"<|start_header_id|>{role}<|end_header_id|>\n\n" for role in _ROLES},
        ),
    ),
    (
        ("<|start|>", "<|channel|>", "<|message|>"),
        AssistantMarkers(
            assistant_start="<|start|>assistant",
            assistant_end="<|return|>",
            assistant_end_fallbacks=("<|end|>", "<|call|>"),
            other_role_starts={role: f"<|start|>{role}" for role in _ROLES},
        ),
    ),
    (
        ("]~!b[", "]~b]", "[e~[", "<mm:think>"),
        AssistantMarkers(
            assistant_start="]~b]ai\n",
            assistant_end="[e~[\n",
            other_role_starts={
                **{"system": "]~!b[]~b]system\n", "developer": "]~b]developer\n"},
                **{"user": "]~b]user\n", "tool": "]~b]tool"},
            },
        ),
    ),
)
#: End of a family's turns -> another token that ends some of them, where the tokenizer has it. Llama 3.1 ends a call
#: that it wants an answer to with `<|eom_id|>`, which Megatron-Bridge does not know; Gemma 4 with `<|tool_response>`,
#: behind which it writes the answer, and which 0.7 knows.
MORE_ENDS = {"<|eot_id|>": "<|eom_id|>", "<turn|>": "<|tool_response>"}
