"""Writes values in Thrift's compact protocol, in which Parquet's headers and footers are.

Source: Apache Thrift, doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_TRUE, _BYTE, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 3, 5, 6, 8, 9, 12
_LONG_LIST = 15


#: As it stands in a struct or a list: the code of its type, and its bytes.
Value = tuple[int, bytes]
#: A field that is true; a boolean has no bytes but its type.
TRUE: Value = (_TRUE, b"")


def varint(number: int) -> bytes:
    """Return a number of 0 or more, seven bits to a byte, the lowest first: 300 -> `ac 02`."""
    if number < 1 << 7:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((number & 127 | 128, number >> 7))
    content = bytearray()
    while number > 127:
        content.append(number & 127 | 128)
        number >>= 7
    content.append(number)
    return bytes(content)


def byte(number: int) -> Value:
    """Return an i8 of 0 to 127."""
    return _BYTE, bytes((number,))


def i32(number: int) -> Value:
    """Return an i32 of 0 or more."""
    return _I32, varint(number << 1)


def i64(number: int) -> Value:
    """Return an i64 of 0 or more."""
    return _I64, varint(number << 1)


def text(content: str) -> Value:
    """Return a string."""
    encoded = content.encode()
    return _BINARY, varint(len(encoded)) + encoded


def struct(fields: Mapping[int, Value]) -> Value:
    """Return a struct; field numbers must rise, by at most 15."""
    content = bytearray()
    last = 0
    for number, (kind, value) in fields.items():
        content.append(number - last << 4 | kind)
        content += value
        last = number
    content.append(0)
    return _STRUCT, bytes(content)


def list_of(values: Sequence[Value]) -> Value:
    """Return a list of values of one type; one without any is a list of structs."""
    kind = values[0][0] if values else _STRUCT
    size = len(values)
    head = bytes((size << 4 | kind,)) if size < _LONG_LIST else bytes((_LONG_LIST << 4 | kind,)) + varint(size)
    return _LIST, head + b"".join([content for _, content in values])
