"""What a process that trains on a machine without a GPU has in its environment, before it imports torch."""

from __future__ import annotations

from collections.abc import Mapping

#: Nothing is compiled (torch 2.13 compiled by dynamo trains to other losses), and many ranks share few cores.
COMPUTING: Mapping[str, str] = {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
#: The same; and nothing is fetched, no GPU is used.
ENVIRONMENT: Mapping[str, str] = {**COMPUTING, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
