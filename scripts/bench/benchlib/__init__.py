"""What the benchmarks share: data, fresh processes with their time and memory, medians, tables."""

from bridgepack.errors import BridgepackError


class BenchmarkError(BridgepackError):
    """A benchmark that cannot run, or a measured process that failed."""
