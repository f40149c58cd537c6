"""The command `bridgepack` in a fork that has its libraries imported: `python -m tests.support.host_forks` runs it."""

from bridgepack.cli import main

if __name__ == "__main__":
    main()
