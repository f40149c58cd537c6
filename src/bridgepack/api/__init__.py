"""The Python API: one function per command, plus conversion to and from Megatron-Bridge configs.

In: recipes, artifacts and options as values. Out: results with `to_dict` and `to_pandas`.
Read first: `making`, then `proving`.
"""

from bridgepack.api.making import build as build
from bridgepack.api.making import forward_step_for as forward_step_for
from bridgepack.api.making import load_recipe as load_recipe
from bridgepack.api.making import pack_for as pack_for
from bridgepack.api.making import plan as plan
from bridgepack.api.making import preview as preview
from bridgepack.api.making import repack as repack
from bridgepack.api.making import to_bridge as to_bridge
from bridgepack.api.proving import canary as canary
from bridgepack.api.proving import check as check
from bridgepack.api.proving import diff as diff
from bridgepack.api.proving import explain as explain
from bridgepack.api.proving import inspect as inspect
from bridgepack.api.proving import masks as masks
from bridgepack.api.proving import report as report
from bridgepack.api.proving import trace as trace
from bridgepack.api.proving import verify as verify
