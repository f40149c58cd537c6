"""Labels of multi-token prediction over padded packs, as Megatron-Core shifts them: what BP803 says of them."""

from collections import defaultdict, deque
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bridgepack.replay.slicing import thd_positions

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]


class _Group(SimpleNamespace):
    """A context-parallel group, as far as the shift looks at it."""

    def size(self) -> int:
        return int(self.ranks)


class _Mail:
    """What ranks send each other, where one process runs them one after the other: first all send, then all receive."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self.is_delivered = False

    def send(self, tensor: Any, dst: int, rank: int) -> Any:
        if not self.is_delivered:
            self.sent[rank, dst].append(tensor.clone())
        return SimpleNamespace(wait=lambda: None)

    def receive(self, tensor: Any, src: int, rank: int) -> Any:
        if self.is_delivered:
            tensor.copy_(self.sent[src, rank].popleft())
        return SimpleNamespace(wait=lambda: None)


def _labels(lengths: list[int], multiple: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return the labels one token further of every position, as the host makes them, and as they should be.

    Tokens are numbered from 1; the label of a sequence's last token is 0, and that of padding -1, which is not asked.
    """
    from megatron.bridge.training.utils.packed_seq_utils import get_packed_seq_params
    from megatron.core.transformer.multi_token_prediction import roll_tensor

    widths = [-(-length // multiple) * multiple for length in lengths]
    logical, physical = (np.concatenate(([0], np.cumsum(sizes))).astype(np.int32) for sizes in (lengths, widths))
    expected = np.full(physical[-1], -1)
    for start, length in zip(physical[:-1], lengths, strict=True):
        expected[start : start + length] = [*range(start + 2, start + length + 1), 0]
    batch = {
        "cu_seqlens": torch.from_numpy(physical)[None],
        "cu_seqlens_argmin": torch.tensor(len(physical)),
        "max_seqlen": torch.tensor(max(widths)),
    }
    if multiple > 1:
        offsets = {"cu_seqlens_unpadded": torch.from_numpy(logical)[None]}
        batch |= offsets | {"cu_seqlens_unpadded_argmin": torch.tensor(len(logical))}
    parameters, tokens = get_packed_seq_params(batch), torch.arange(1, physical[-1] + 1)
    places = thd_positions(physical, int(physical[-1]), ranks)
    mail, actual = _Mail(), np.zeros_like(expected)
    for mail.is_delivered in (False, True):
        for rank in range(ranks):
            with monkeypatch.context() as patch:
                patch.setattr(torch.distributed, "get_rank", lambda group, rank=rank: rank)
                patch.setattr(torch.distributed, "get_process_group_ranks", lambda group: list(range(ranks)))
                patch.setattr(torch.distributed, "isend", partial(mail.send, rank=rank))
                patch.setattr(torch.distributed, "irecv", partial(mail.receive, rank=rank))
                rolled, _ = roll_tensor(
                    tokens[places[rank]][None],
                    shifts=-1,
                    dims=-1,
                    cp_group=_Group(ranks=ranks),
                    packed_seq_params=parameters,
                )
            actual[places[rank]] = rolled[0].numpy()
    return actual, expected


@pytest.mark.parametrize("ranks", [1, 2])
def test_labels_are_right_where_no_sequence_is_padded(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    actual, expected = _labels([8, 4, 12], 2 * ranks if ranks > 1 else 1, ranks, monkeypatch)

    assert actual.tolist() == expected.tolist()


def test_labels_end_where_sequences_would_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences of 5 and 3 tokens, at 0 and 8: the second has its own tokens as labels."""
    actual, expected = _labels([5, 3], 4, 1, monkeypatch)

    assert expected.tolist() == [2, 3, 4, 5, 0, -1, -1, -1, 10, 11, 0, -1]
    assert actual[expected >= 0].tolist() == [2, 3, 4, 5, 0, 9, 10, 11]


@pytest.mark.parametrize(
    ("shortest", "ranks", "share"), [(10, 1, 0.126), (10, 2, 0.257), (300, 1, 0.011), (300, 2, 0.024)]
)
def test_short_sequences_have_many_wrong_labels(
    shortest: int, ranks: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack of sequences of `shortest` to `shortest` + 30 tokens, padded to multiples of 4."""
    lengths = np.random.default_rng(7).integers(shortest, shortest + 31, 200)
    actual, expected = _labels(lengths.tolist(), 4, ranks, monkeypatch)

    assert (actual != expected)[expected >= 0].mean() == pytest.approx(share, abs=5e-3)
