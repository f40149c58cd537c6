"""The `bridgepack` command. In: words of a command line; out: text or JSON, and an exit code. Read `main` first."""

from bridgepack.cli.main import bridgepack as bridgepack
from bridgepack.cli.main import main as main
