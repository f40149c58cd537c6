"""Context-parallel ranks get the tokens that the real forward step gives them.

TransformerEngine's kernel needs a GPU. Where that is not at hand, its place in the host's code is taken by our own
reading of it, so the host's choice of offsets and of what is cut is still compared; the kernel itself is compared where
it is installed, and Megatron-Core's own cuts, which need no kernel, everywhere.
"""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bridgepack.replay.collate import CollateSettings, predict_batch
from bridgepack.replay.slicing import slice_row, thd_positions
from tests.support.host_datasets import open_host_dataset
from tests.support.installed_host import host_release
from tests.support.packed_rows import EOS_TOKEN_ID, random_rows, write_shards

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

SIZE, NUM_ROWS = 192, 12
CUT = ("tokens", "labels", "loss_mask", "position_ids")


class _Group(SimpleNamespace):
    """A process group of the host's, as far as a cut looks at it."""

    def size(self) -> int:
        return int(self.ranks)

    def rank(self) -> int:
        return int(self.own)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Put our reading of TransformerEngine's kernel into Megatron-Core; return the offsets that it is called with."""
    from megatron.core import utils

    calls: list[Any] = []

    def indices(offsets: Any, num_tokens: int, ranks: int, rank: int) -> Any:
        calls.append(offsets.tolist())
        return torch.from_numpy(thd_positions(offsets.numpy(), num_tokens, ranks)[rank])

    monkeypatch.setattr(utils, "tex", SimpleNamespace(thd_get_partitioned_indices=indices), raising=False)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: group.size())
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group: group.rank())
    return calls


@pytest.mark.parametrize("multiple", [1, 8, 16])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_host_s_forward_step_cuts_rows_so(
    kernel: list[Any], host_tokenizer: Any, tmp_path: Path, multiple: int, ranks: int
) -> None:
    """With multiple 1 sequences do not divide: then tokens are lost, and the prediction says which."""
    from megatron.bridge.data.batch_utils import split_batch_into_microbatches
    from megatron.bridge.training import gpt_step

    rows = random_rows(ranks, num_rows=NUM_ROWS, packed_sequence_size=SIZE, pad_seq_to_mult=multiple)
    write_shards(tmp_path / "training", rows, num_shards=2, row_group_size=4)
    collate = CollateSettings(
        release=host_release(),
        packed_sequence_size=SIZE,
        pad_seq_to_mult=multiple,
        eos_token_id=EOS_TOKEN_ID,
        pad_to_max_length=True,
    )
    host = open_host_dataset(tmp_path / "training", host_tokenizer, collate)
    whole = host.collate_fn([host[index] for index in range(NUM_ROWS)])
    batch = predict_batch(rows, collate)

    num_checked = 0
    for index, micro_batch in enumerate(split_batch_into_microbatches(whole, NUM_ROWS)):
        slices = slice_row(batch, index, ranks)
        for rank in range(ranks):
            own = gpt_step._partition_packed_batch_for_cp(dict(micro_batch), _Group(ranks=ranks, own=rank))
            for name in CUT:
                np.testing.assert_array_equal(own[name][0].numpy(), getattr(slices, name)[rank])
            num_checked += 1
    assert num_checked == NUM_ROWS * ranks
    assert kernel
    assert all(offsets[-1] == SIZE for offsets in kernel)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_a_row_without_boundaries_is_cut_as_megatron_core_does(kernel: list[Any], ranks: int) -> None:
    from megatron.core.utils import get_batch_on_this_cp_rank

    num_tokens = 48 * ranks
    positions = thd_positions([0, num_tokens], num_tokens, ranks)
    for rank in range(ranks):
        batch = {"tokens": torch.arange(num_tokens).unsqueeze(0), "cu_seqlens": None}
        own = get_batch_on_this_cp_rank(batch, is_hybrid_cp=False, cp_group=_Group(ranks=ranks, own=rank))
        assert own["tokens"][0].tolist() == positions[rank].tolist()
    assert kernel == []


def test_rotary_positions_of_megatron_core_are_those_of_the_slices() -> None:
    """Megatron-Core works out each rank's positions in every sequence by itself."""
    from megatron.core.models.common.embeddings.rope_utils import _get_thd_freqs_on_this_cp_rank

    rng, num_checked = random.Random(5), 0
    for _ in range(60):
        ranks = rng.choice((2, 3, 4, 8))
        lengths = [2 * ranks * rng.randint(1, 6) for _ in range(rng.randint(1, 6))]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        starts = np.repeat(offsets[:-1], lengths)
        places = thd_positions(offsets, int(offsets[-1]), ranks)
        for rank in range(ranks):
            of_host = [
                _get_thd_freqs_on_this_cp_rank(
                    rank, ranks, torch.empty(length // ranks), torch.arange(max(lengths))
                ).tolist()
                for length in lengths
            ]
            assert [place for of_one in of_host for place in of_one] == (places[rank] - starts[places[rank]]).tolist()
            num_checked += 1
    assert num_checked > 100


def test_the_kernel_itself() -> None:
    engine = pytest.importorskip("transformer_engine_torch", reason="TransformerEngine is not installed")
    if not torch.cuda.is_available():
        pytest.skip("the kernel needs a GPU")
    rng = random.Random(11)
    for _ in range(300):
        ranks = rng.choice((2, 3, 4, 8))
        lengths = [2 * ranks * rng.randint(0, 40) for _ in range(rng.randint(1, 30))]
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        num_tokens = int(offsets[-1])
        on_gpu = torch.from_numpy(offsets).cuda()
        for rank, own in enumerate(thd_positions(offsets, num_tokens, ranks)):
            indices = engine.thd_get_partitioned_indices(on_gpu, num_tokens, ranks, rank)
            assert indices.tolist() == own.tolist()
