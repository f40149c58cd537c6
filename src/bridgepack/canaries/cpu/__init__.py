"""The host's training step on a machine without a GPU.

In: the installed Megatron-Bridge. Out: a process in which its step runs on gloo, with attention in plain torch.
Read first: `training`.
"""

from collections.abc import Mapping

#: Environment of a process before it imports torch: nothing is compiled (torch 2.13 compiled by dynamo trains to other
#: losses), and many ranks share few cores.
COMPUTING: Mapping[str, str] = {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
#: The same; and nothing is fetched, no GPU is used.
ENVIRONMENT: Mapping[str, str] = {**COMPUTING, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
