"""Turns of a chat in one text: the markers that chat templates write before them."""

import re

#: What begins a question and what begins its answer, in turns under the names of their speakers, as in Glaive's `chat`,
#: Vicuna's and OpenAssistant-Guanaco's texts, Alpaca's prompts and OpenChatKit's; before them what such texts contain,
#: as most documents do not, and that is found fast.
_NAMED = tuple(
    (marker, re.compile(question), re.compile(answer))
    for marker, question, answer in (
        ("Assistant", r"(?:^|\n)[ \t]*(?:Human|User)\s*:", r"(?<=[\s>])Assistant\s*:"),
        ("ASSISTANT", r"\b(?:USER|HUMAN)\s?:", r"\bASSISTANT\s?:"),
        ("###", r"###\s*(?:Human|User|HUMAN|USER)\s*:", r"###\s*(?:Assistant|ASSISTANT|AI|Bot)\s*:"),
        ("Response", r"###\s*(?:Instruction|Prompt)\s*(?::|\n)", r"###\s*Response\s*(?::|\n)"),
        ("<bot>", r"<human>\s*:", r"<bot>\s*:"),
    )
)
_ROLES = "(?:system|developer|user|assistant|model|tool|human|bot|ai|prompter|prompt|answer|SYSTEM|USER|"
_ROLES += "ASSISTANT|CHATBOT|HUMAN|User|Assistant|Human|AI|Bot)"
#: Texts that begin a turn, of the families of chat templates; a rendered chat has at least two.
_TURN = re.compile(
    rf"""
    <\|im_start\|>                                  # ChatML: Qwen, Yi, SmolLM3, Hermes
    | <\|im_(?:system|user|assistant)\|>            # Kimi
    | <\|start_header_id\|> | <\|header_start\|>    # Llama 3, Llama 4
    | <start_of_turn> | <\|turn>                    # Gemma
    | \[/?INST\]                                    # Mistral, Llama 2
    | <\|start\|>{_ROLES}                           # gpt-oss
    | <[|｜]{_ROLES}[|｜]>                          # Phi, GLM, Zephyr, DeepSeek, OpenAssistant
    | \[\|{_ROLES}\|\]                              # EXAONE, Baize
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
    return _rendered_turns(text) or _named_turns(text)


def has_named_turns(text: str) -> bool:
    """Return whether a text holds turns under the names of their speakers: `USER: Hi`, `ASSISTANT: Hello`."""
    return _named_turns(text) is not None


def _named_turns(text: str) -> str | None:
    """Return what begins the first question that an answer follows: `USER: Hi ASSISTANT: Hello` -> `USER:`."""
    for marker, question, answer in _NAMED:
        match = question.search(text) if marker in text else None
        if match is not None and answer.search(text, match.end()):
            return match[0].strip()
    return None


def has_rendered_turns(text: str) -> bool:
    """Return whether a text holds several turns as a chat template writes them."""
    return _rendered_turns(text) is not None


def _rendered_turns(text: str) -> str | None:
    """Return what begins the first of several turns, as a chat template writes them."""
    match = _TURN.search(text)
    return match[0] if match is not None and _TURN.search(text, match.end()) else None
