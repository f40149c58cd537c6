"""The tokens of regions: a token is the answer's if it begins inside the region."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bridgepack.data.answers.regions import Region, UnplaceableError
from bridgepack.data.tokenizers.cutting import CuttingTokens
from bridgepack.data.tokenizers.places import TokenPlaces
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.records import TokenArray


class TokenRegion(NamedTuple):
    """A region in tokens."""

    message: int
    header: int
    start: int
    end: int
    stop: int


def token_regions(
    tokenizer: ChatTokenizer, cutting: CuttingTokens, text: str, input_ids: TokenArray, regions: Sequence[Region]
) -> list[TokenRegion]:
    """Return regions of a text in its tokens, `input_ids`, shape [num_tokens].

    Raises:
        UnplaceableError: the tokenizer reports no places, and no token that always cuts texts tells them.
    """
    if tokenizer.backend is None:
        return [_by_cuts(tokenizer, cutting, text, input_ids, region) for region in regions]
    places = TokenPlaces.of(tokenizer, text)
    assert len(places.starts) == len(input_ids)
    return [_by_places(places, region) for region in regions]


def _by_places(places: TokenPlaces, region: Region) -> TokenRegion:
    header, start, end, stop = (int(place) for place in np.searchsorted(places.starts, region[1:], side="left"))
    if start and places.text[region.start : int(places.stops[start - 1])].strip():
        raise UnplaceableError(f"one token holds the end of turn {region.message + 1}'s header and its first letters")
    # white space behind an end may be the beginning of another token
    last_character = region.end + len(places.text[region.end : region.stop].rstrip())
    while stop > start and places.stops[stop - 1] > region.stop and places.starts[stop - 1] >= last_character:
        stop -= 1
    return TokenRegion(region.message, header, start, min(end, stop), stop)


def _by_cuts(
    tokenizer: ChatTokenizer, cutting: CuttingTokens, text: str, input_ids: TokenArray, region: Region
) -> TokenRegion:
    ids = input_ids.tolist()

    def token_behind(first: int, stop: int) -> int:
        """Return the token behind a part of the text that begins with a token that always cuts it."""
        place = cutting.token_at(text, ids, first)
        part = tokenizer.encode(text[first:stop])
        if place is None or ids[place : place + len(part)] != part:
            raise UnplaceableError("the tokenizer does not say where its tokens lie in a text")
        return place + len(part)

    start = token_behind(region.header, region.start)
    header = start - len(tokenizer.encode(text[region.header : region.start]))
    stop = token_behind(region.end, region.stop)
    return TokenRegion(
        region.message, header, start, stop - len(tokenizer.encode(text[region.end : region.stop])), stop
    )
