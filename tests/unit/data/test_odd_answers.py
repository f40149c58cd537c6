"""Thoughts under any markers, and places for media: named, moved or left, by the template."""

from typing import Any

import pytest

from bridgepack.data.sequences.inline_thoughts import ThoughtMover
from bridgepack.data.sequences.media import media_of

FIELD = "{{ message.reasoning_content }}"
#: A template that knows `<think>`, as Qwen3's; one with other thoughts; one without.
QWEN, MAGISTRAL, PLAIN = "<think>{{ x }}</think>" + FIELD, "[THINK]{{ x }}[/THINK]" + FIELD, "{{ message.content }}"


def _answer(content: Any, **fields: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


@pytest.mark.parametrize(
    ("template", "content"),
    [
        (QWEN, "[THINK]Hm.[/THINK]4"),
        (QWEN, "<seed:think>Hm.</seed:think>4"),
        (QWEN, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>"),
        (QWEN, "<thinking>Hm.</thinking>\n<answer>4</answer>"),
        (QWEN, "<reflection>Hm.</reflection><output>4</output>"),
        (QWEN, "<|begin_of_thought|>Hm.<|end_of_thought|>\n<|begin_of_solution|>4<|end_of_solution|>"),
        (QWEN, "◁think▷Hm.◁/think▷4"),
        (MAGISTRAL, "<think>\nHm.\n</think>\n\n4"),
    ],
)
def test_thoughts_under_markers_of_others_are_found_and_moved(template: str, content: str) -> None:
    mover = ThoughtMover(template)

    found = mover.find(_answer(content))

    assert found is not None
    assert found.why_kept == ""
    assert mover.move(_answer(content)) == _answer("4", reasoning_content="Hm.")


def test_thoughts_are_named_under_a_template_without_thoughts() -> None:
    found = ThoughtMover(PLAIN).find(_answer("<think>Hm.</think>4"))

    assert found is not None
    assert (found.thoughts, found.answer) == ("Hm.", "4")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("<think>Hm.</think>4", ""),
        ("4", ""),
        ("4 stands in <think>.", ""),
        ("<think>Hm. 4", "'</think>' is missing"),
        ("<think>Hm. <think>So.</think>4", "'<think>' twice"),
    ],
)
def test_thoughts_that_the_template_breaks_are_named(content: str, why: str) -> None:
    said = ThoughtMover(QWEN).why_odd(_answer(content))

    assert (why in said) is bool(why or not said)
    assert bool(said) is bool(why)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("<image>\nWhich lake is that?", "'<image>'"),
        ("Which lake is that?\n<image>", "'<image>'"),
        ("Which lake is that? <image>", "'<image>'"),
        ("<video>Which lake is that?", "'<video>'"),
        *(
            (f"Look: {place} Which?", repr(place))
            for place in ("<|image_1|>", "<|image_pad|>", "<image 2>", "<ImageHere>")
        ),
        ("Picture 1: <img>a/b.jpg</img>\nWhich?", "'<img>a/b.jpg</img>'"),
        ("![a](data:image/png;base64,iVBOR) Which?", "'![a](data:image/'"),
        ("[IMG]Which lake is that?", "'[IMG]'"),
        ("An <img> of HTML, and [IMG] in a text.", ""),
        ([{"type": "image_url", "image_url": {"url": "a"}}, {"type": "text", "text": "Which?"}], "'image_url'"),
        ([{"type": "input_audio", "input_audio": {"data": "a"}}], "'input_audio'"),
        ([{"inlineData": {"mimeType": "image/png", "data": "a"}}, {"text": "Which?"}], "'image/png'"),
        ([{"type": "file", "mediaType": "audio/mp3", "url": "a"}], "'audio/mp3'"),
        ([{"image": {"format": "png", "source": {}}}, {"text": "Which?"}], "'image'"),
        ([{"type": "file", "mediaType": "text/plain", "url": "a"}], ""),
        ("The element <image> of SVG is what I mean.", ""),
        ("Mend this:\n<video>\n<source>\n</video>", ""),
        ([{"type": "text", "text": "Which?"}], ""),
        ("Which lake is that?", ""),
    ],
)
def test_media_are_named(content: Any, shown: str) -> None:
    losses = [*media_of([{"role": "user", "content": content}, _answer("It is Uri.")])]

    assert [loss.kind for loss in losses] == (["media"] if shown else [])
    assert all(shown in loss.detail for loss in losses)
    assert not [*media_of([_answer("<image>")])]
