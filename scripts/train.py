#!/usr/bin/env python3
"""Trains a recipe with Megatron-Bridge under the guard; every process of the job runs this.

torchrun --nproc-per-node 8 scripts/train.py --recipe mine.yaml --run-folder runs/mine --artifact packed
"""

import sys

from bridgepack.running.train import main

if __name__ == "__main__":
    sys.exit(main())
