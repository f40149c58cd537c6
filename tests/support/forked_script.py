"""Runs a Python file in a fork that has the libraries imported: `python -m tests.support.host_forks` starts it."""

import runpy
import sys

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
