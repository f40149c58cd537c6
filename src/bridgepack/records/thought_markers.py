"""Texts around thoughts: those of chat templates, and others of data sets."""

#: (opening text, closing text of thoughts in chat templates, whether the closing text closes nothing else):
#: Qwen3, DeepSeek and most others; Magistral; Seed-OSS; Command A; Gemma 4; gpt-oss.
THOUGHT_MARKERS = (
    ("<think>", "</think>", True),
    ("[THINK]", "[/THINK]", True),
    ("<seed:think>", "</seed:think>", True),
    ("<|START_THINKING|>", "<|END_THINKING|>", True),
    ("<|channel>thought\n", "<channel|>", False),
    ("<|channel|>analysis<|message|>", "<|end|>", False),
)
_NAMES = (
    *("reasoning", "thinking", "thought", "thoughts", "scratchpad", "reflection", "analysis", "cot", "rationale"),
    *("inner_monologue", "inner_thoughts"),
)
#: The same of answers in data sets, under a template with other markers: those of templates; OpenThoughts and Sky-T1;
#: Reflection and others; Kimi; MedGemma.
INLINE_THOUGHT_MARKERS = (
    *THOUGHT_MARKERS,
    ("<|begin_of_thought|>", "<|end_of_thought|>", True),
    *((f"<{name}>", f"</{name}>", True) for name in (*_NAMES, *map(str.title, ("think", *_NAMES)))),
    *((f"<|{name}|>", f"<|/{name}|>", True) for name in ("think", *_NAMES)),
    ("◁think▷", "◁/think▷", True),
    ("<unused94>thought\n", "<unused95>", True),
)
#: (opening, closing text) of what follows thoughts in answers of data sets.
INLINE_ANSWER_MARKERS = (
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|start|>assistant<|channel|>final<|message|>", "<|return|>"),
    *((f"<{name}>", f"</{name}>") for name in ("answer", "output", "solution", "response", "final_answer")),
)
