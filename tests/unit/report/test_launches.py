"""Launches as text: what came of the tasks, what is left after an interruption, the end of a log."""

from pathlib import Path

from bridgepack.launch.results import LaunchResult, TaskResult
from bridgepack.report.launches import describe_interrupt, describe_result, log_tail


def result(*tasks: TaskResult, is_detached: bool = False) -> LaunchResult:
    return LaunchResult(
        run_name="small_1",
        run_folder="/shared/runs/small_1",
        experiment_folder="/nemo_run/experiments/small/small_1",
        tasks=tasks,
        is_detached=is_detached,
    )


def test_a_failed_task_shows_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "combined.log"
    log.write_text("".join(f"line {number}\n" for number in range(30)) + "\x1b[31mout of memory\n")
    text = describe_result(
        result(
            TaskResult(name="build", executor="local", state="succeeded", job="build-1", log="/b.log", seconds=12.34),
            TaskResult(name="train", executor="local", state="failed", job="train-1", log=str(log), seconds=1),
        )
    )

    assert text.splitlines() == [
        "build       succeeded  after 12.3 s  log /b.log",
        f"train       failed  after 1.0 s  log {log}",
        "run folder  /shared/runs/small_1",
        "look again  nemo experiment status small_1",
        "",
        f"train: end of {log}",
        *(f"  line {number}" for number in range(11, 30)),
        "  \N{REPLACEMENT CHARACTER}[31mout of memory",
    ]


def test_a_detached_launch_says_how_to_look_and_cancel() -> None:
    tasks = [
        TaskResult(name=name, executor="slurm", state="submitted", job=job)
        for name, job in (("build", "7"), ("train", "8"))
    ]
    text = describe_result(result(*tasks, is_detached=True))

    assert text.splitlines() == [
        "build       submitted  job 7",
        "train       submitted  job 8",
        "run folder  /shared/runs/small_1",
        "look again  nemo experiment status small_1",
        "cancel      nemo experiment cancel small_1 0   (0 is the first task)",
    ]
    assert not result(*tasks, is_detached=True).has_failed
    assert result(*tasks).has_failed


def test_an_interruption_says_what_was_ended_and_what_goes_on() -> None:
    text = describe_interrupt(
        result(
            TaskResult(name="build", executor="local", state="cancelled", job="build-1"),
            TaskResult(name="check", executor="slurm", state="pending", job="8"),
            TaskResult(name="train", executor="slurm", state="not started"),
        )
    )

    assert text == (
        "interrupted; build was ended; train was not started; still on the cluster: check (job 8); cancel with "
        "`nemo experiment cancel small_1 0`, where 0 is the first task; left behind: the run folder "
        "/shared/runs/small_1, nemo-run's /nemo_run/experiments/small/small_1"
    )


def test_long_lines_are_cut_and_missing_logs_are_empty(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x" * 1000 + "\nshort\n")

    assert log_tail(str(tmp_path / "log")) == ["x" * 400 + " ...", "short"]
    assert log_tail(str(tmp_path)) == log_tail("/no/such/log") == log_tail("") == []
