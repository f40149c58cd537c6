"""bridgepack's tasks in nemo-run's command line: `nemorun bridgepack build|check|train recipe=TARGET`.

In: a recipe by name or file, and overrides. Out: tasks that nemo-run calls, here or as jobs. Read first: `tasks`.
"""

from bridgepack.nemo_cli.tasks import build as build
from bridgepack.nemo_cli.tasks import check as check
from bridgepack.nemo_cli.tasks import preflight as preflight
from bridgepack.nemo_cli.tasks import train as train
