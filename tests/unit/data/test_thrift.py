"""Bytes of the compact protocol, by hand from its specification."""

from __future__ import annotations

import pytest

from bridgepack.data.shards.thrift import TRUE, byte, i32, i64, list_of, struct, text, varint


@pytest.mark.parametrize(
    ("number", "content"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**63, "80808080808080808001"),
    ],
)
def test_varint(number: int, content: str) -> None:
    assert varint(number).hex() == content


def test_values_have_the_code_of_their_type() -> None:
    assert TRUE == (1, b"")
    assert byte(8) == (3, b"\x08")
    assert i32(64) == (5, b"\x80\x01")
    assert i64(1) == (6, b"\x02")
    assert text("é") == (8, b"\x02\xc3\xa9")


def test_struct_says_how_far_the_next_field_is() -> None:
    inner = struct({1: byte(8), 2: TRUE})

    assert inner == (12, bytes.fromhex("13081100"))
    assert struct({2: i32(1), 15: i64(2), 16: inner}) == (12, bytes.fromhex("2502d6041c1308110000"))
    assert struct({}) == (12, b"\0")


@pytest.mark.parametrize(("num_values", "head"), [(0, "0c"), (1, "15"), (14, "e5"), (15, "f50f"), (200, "f5c801")])
def test_list_says_its_size_and_the_type_of_its_values(num_values: int, head: str) -> None:
    assert list_of([i32(1)] * num_values) == (9, bytes.fromhex(head + "02" * num_values))
