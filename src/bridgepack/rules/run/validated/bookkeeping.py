"""Rules on the profiler, the loggers, what is loaded and saved, and batch sizes that are not set."""

from bridgepack.host.validated import LOGGER_PACKAGES
from bridgepack.records.messages import say
from bridgepack.rules.judging.rule import ERROR, EXECUTED, VALIDATE, Found, fixable_rule, rule, set_to, wrong
from bridgepack.rules.judging.subject import Run

_START, _END = "profiling.profile_step_start", "profiling.profile_step_end"


@fixable_rule("BP882", ERROR, "bridge/training/config.py:755-764", noticed=VALIDATE, evidence=EXECUTED)
def profiled_steps_in_disorder(run: Run) -> Found:
    """The first profiled step comes after the last, a step is negative, or two profilers are on.

    Bad: profile_step_start 20, profile_step_end 12. Good: profile_step_end 22.
    Fix: Set {profiling.profile_step_end} to at least {profiling.profile_step_start}, both from 0 on, and turn one
        profiler on.
    """
    start, end = run.stated_integer(_START), run.stated_integer(_END)
    for path, step in ((_START, start), (_END, end)):
        if step is not None and step < 0:
            yield wrong(path, str(step), "0 or more")
    if start is not None and end is not None and 0 <= end < start:
        yield wrong(_END, f"{end} with profile_step_start {start}", f"{start} or more")
    if run.is_on("profiling.use_nsys_profiler") and run.is_on("profiling.use_pytorch_profiler"):
        yield wrong("profiling.use_pytorch_profiler", "true with use_nsys_profiler true", "one of the two", to=False)


@rule("BP883", ERROR, "bridge/training/config.py:684-711; bridge/training/state.py:198")
def logger_without_a_run_name(run: Run) -> Found:
    """A logger has an experiment or a project, but the run has no name in it.

    Why: Crash at start: validate() refuses it for MLflow and Comet, the first log line for Weights & Biases.
    Bad: logger.mlflow_experiment sft, mlflow_run_name not set. Good: mlflow_run_name first.
    Fix: Name the run, or unset the experiment or project.
    Noticed: validate(), or the first log line. Evidence: executed with the real 0.6.2 for MLflow and Comet.
    """
    for project, name in (("mlflow_experiment", "mlflow_run_name"), ("comet_project", "comet_experiment_name")):
        if run.stated_value(f"logger.{project}") and not run.stated_value(f"logger.{name}"):
            yield wrong(f"logger.{name}", f"not set, with {project}", "a name", group=name)
    if run.stated_value("logger.wandb_project") and run.stated_value("logger.wandb_exp_name") == "":
        yield wrong("logger.wandb_exp_name", "empty, with wandb_project", "a name, or None", group="wandb_exp_name")


@rule("BP884", ERROR, "bridge/training/config.py:689-733", noticed=VALIDATE, evidence=EXECUTED)
def package_of_a_logger_missing(run: Run) -> Found:
    """A logger is set up whose package is not installed.

    Bad: logger.mlflow_experiment sft, no mlflow. Good: with mlflow.
    Fix: Install the package where the run will be, or unset the logger's fields.
    """
    for package, fields in LOGGER_PACKAGES.items():
        path = next((f"logger.{name}" for name in fields if run.stated_value(f"logger.{name}")), None)
        if path is not None and package not in run.require_environment().versions:
            yield wrong(path, f"set, and {package} is not installed", f"with {package} installed", group=package)


@fixable_rule("BP885", ERROR, "bridge/training/config.py:589-627", noticed=VALIDATE, evidence=EXECUTED)
def checkpoint_options_contradicted(run: Run) -> Found:
    """Options of loading and saving checkpoints exclude each other, or need a setting that is missing.

    Bad: load_main_params_from_ckpt true, load_optim true. Good: load_optim false.
    Fix: Set {checkpoint.load_optim} to false with {checkpoint.load_main_params_from_ckpt}; {checkpoint.load} with
        {checkpoint.ckpt_step}; {checkpoint.ckpt_format} torch_dist and non-persistent checkpoints of type global with
        {checkpoint.also_save_hf_checkpoint}.
    """
    section = "checkpoint"
    if run.is_on(f"{section}.load_main_params_from_ckpt") and run.is_on(f"{section}.load_optim"):
        actual = "true with load_main_params_from_ckpt true"
        yield wrong(f"{section}.load_optim", actual, "false", to=False, because="only the weights are loaded")
    if run.is_set(f"{section}.ckpt_step") and not run.is_set(f"{section}.load"):
        actual = say("{step} without {checkpoint.load}", step=run.value(f"{section}.ckpt_step"))
        fix = say("Set {checkpoint.ckpt_step} to null, or {checkpoint.load} to the folder of the checkpoints.")
        yield wrong(f"{section}.ckpt_step", actual, say("None, or with {checkpoint.load}"), fix=fix)
    if run.is_on(f"{section}.async_save") and run.stated_value(f"{section}.use_persistent_ckpt_worker") is False:
        worker = f"{section}.use_persistent_ckpt_worker"
        yield wrong(worker, "false with async_save true", "true", to=True, fix=set_to(worker, "true"))
    export_path = f"{section}.also_save_hf_checkpoint"
    for name, value in (("ckpt_format", "fsdp_dtensor"), ("non_persistent_ckpt_type", "local")):
        if run.is_on(export_path) and run.stated_value(f"{section}.{name}") == value:
            yield wrong(export_path, f"true with {name} {value}", "false", to=False, fix=set_to(export_path, "false"))
    reshard_path = "distrib_optim_fully_reshardable_mem_efficient"
    if run.is_on(f"{section}.dist_ckpt_optim_fully_reshardable") and run.is_on(f"{section}.{reshard_path}"):
        path, actual = f"{section}.{reshard_path}", "true with dist_ckpt_optim_fully_reshardable true"
        yield wrong(path, actual, "false", to=False, fix=set_to(path, "false"))


@rule("BP886", ERROR, "bridge/training/config.py:1291-1303", noticed=VALIDATE, evidence=EXECUTED)
def batch_size_not_set(run: Run) -> Found:
    """train.global_batch_size or train.micro_batch_size is not set.

    Bad: train.global_batch_size null. Good: train.global_batch_size 128.
    Fix: Set both; a global batch is a multiple of {train.micro_batch_size} x data-parallel ranks.
    """
    for name in ("global_batch_size", "micro_batch_size"):
        if run.is_stated(f"train.{name}") and run.value(f"train.{name}") is None:
            yield wrong(f"train.{name}", "not set", "a number of packs", group=name)
