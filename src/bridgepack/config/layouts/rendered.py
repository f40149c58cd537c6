"""Turns of a chat in one text: the markers that chat templates write before them."""

import re

#: Turns written into one text, as in Glaive's `chat`.
_MARKED = re.compile(
    r"(?:^|\n)\s*(?:USER|Human|User|### Human)\s*:.*\n\s*(?:ASSISTANT|Assistant|### Assistant)\s*:", re.S
)
_ROLES = "(?:system|developer|user|assistant|model|tool|human|bot|ai|SYSTEM|USER|ASSISTANT|CHATBOT|HUMAN)"
#: Texts that begin a turn, of the families of chat templates; a rendered chat has at least two.
_TURN = re.compile(
    rf"""
    <\|im_start\|>                                  # ChatML: Qwen, Yi, SmolLM3, Hermes
    | <\|im_(?:system|user|assistant)\|>            # Kimi
    | <\|start_header_id\|> | <\|header_start\|>    # Llama 3, Llama 4
    | <start_of_turn> | <\|turn>                    # Gemma
    | \[/?INST\]                                    # Mistral, Llama 2
    | <\|start\|>{_ROLES}                           # gpt-oss
    | <[|｜]{_ROLES}[|｜]> | <[|｜](?:User|Assistant)[|｜]>  # Phi, GLM, Zephyr, DeepSeek
    | \[\|{_ROLES}\|\]                              # EXAONE
    | <\|start_of_role\|> | <\|START_OF_TURN_TOKEN\|>       # Granite, Command R
    | <seed:bos>{_ROLES} | \]~b\]                   # Seed-OSS, MiniMax
    | <role>{_ROLES}</role> | <\|{_ROLES}_start\|>  # Ling, Apertus
    | <SPECIAL_1[0-2]>[A-Z] | <extra_id_[01]>(?:System|User|Assistant)  # Nemotron
    """,
    re.X,
)


def turn_marker(text: str) -> str | None:
    """Return a marker of a turn in a text that holds several turns of a chat; None for other texts.

    `[INST] Hi [/INST] Hello` -> `[INST]`; `[INST] begins a turn of Mistral` -> None
    """
    found = _TURN.search(text)
    if found is not None and _TURN.search(text, found.end()):
        return found[0]
    marked = _MARKED.search(text)
    return None if marked is None else " ".join(marked[0].split())[:20]


def has_named_turns(text: str) -> bool:
    """Return whether a text holds turns under the names of their speakers: `USER: Hi`, `ASSISTANT: Hello`."""
    return _MARKED.search(text) is not None


def has_rendered_turns(text: str) -> bool:
    """Return whether a text holds several turns as a chat template writes them."""
    found = _TURN.search(text)
    return found is not None and _TURN.search(text, found.end()) is not None
