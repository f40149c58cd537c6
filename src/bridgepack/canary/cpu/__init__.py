"""The host's training step on a machine without a GPU.

In: the installed Megatron-Bridge. Out: a process in which its step runs on gloo, with attention in plain torch.
Read first: `training`.
"""
