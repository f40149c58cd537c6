"""`python -m bridgepack.launch.nemo_cli`."""

from bridgepack.launch.nemo_cli import main

main()
