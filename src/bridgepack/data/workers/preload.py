"""Imports transformers' tokenizers in the fork server, so that no worker has to; frameworks are hidden meanwhile."""

import sys

from bridgepack.data.tokenizers.frameworks import hide_frameworks
from bridgepack.data.tokenizers.load import quiet_transformers

_known = set(sys.modules)
quiet_transformers()
hide_frameworks()
from transformers import AutoTokenizer as AutoTokenizer  # noqa: E402
from transformers import PreTrainedTokenizerFast as PreTrainedTokenizerFast  # noqa: E402

for _name in set(sys.modules) - _known:
    if sys.modules[_name] is None:
        del sys.modules[_name]  # the server starts processes for whoever asks, and others may need these
