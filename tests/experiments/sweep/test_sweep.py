"""Sweeps: real runs in miniature, workers that are killed, runs that fail, and a sweep that is stopped."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from caql.agents.naf import NAFConfig
from caql.cli import report as report_command
from caql.cli import sweep as sweep_command
from caql.cli.sweep import Sweep, planned, read_settings, with_address
from caql.config import RunConfig, to_json
from caql.errors import CaqlError
from caql.experiments.report.statistics import best_return
from caql.experiments.sweep import costs
from caql.experiments.sweep.display import Lines, LiveTable, Quiet, counts, left
from caql.experiments.sweep.latency import Probe
from caql.experiments.sweep.local import LocalWorkers
from caql.experiments.sweep.sweep import Ended, Job, Progress, make_jobs, run_name, sweep
from caql.experiments.sweep.worker import Outcome, perform
from caql.runs import checkpoints
from caql.runs.folder import is_finished, read_metrics, run

TINY = RunConfig(
    "Pendulum",
    action_range=2.0,
    episode_steps=20,
    train_steps=60,
    warm_up=64,
    evaluate_every=20,
    evaluation_episodes=1,
    replay_size=1000,
    agent=NAFConfig(),
)
DECAY = "agent.exploration.decay=0.9995"
FIVE, THREE = "caql-ga,naf,ddpg,td3,sac", "caql-ga,td3,sac"
MINIATURE = ["--train-steps", "60", "--set", "warm_up=200; evaluate_every=20; evaluation_episodes=1; replay_size=2000"]


def returns(folder):
    return [(row["train_step"], row["returns"]) for row in read_metrics(folder)]


class Scripted:
    """A backend that ends jobs as it is told: a list of outcomes for each seed."""

    def __init__(self, script):
        self.script, self.running, self.started, self.stopped = script, [], [], False

    @property
    def free(self):
        return 2 - len(self.running)

    def start(self, job):
        self.running.append(job)
        self.started.append(job.config.seed)

    def wait(self, seconds):
        job = self.running.pop(0)
        kind = self.script[job.config.seed].pop(0)
        if kind == "interrupt":
            self.running.append(job)
            raise KeyboardInterrupt
        return [Ended(job, Outcome(kind, "because"))]

    def stop(self):
        self.stopped = True
        return [Ended(job, Outcome("stopped")) for job in self.running]


def scripted(tmp_path, script):
    backend = Scripted({seed: list(kinds) for seed, kinds in enumerate(script)})
    jobs = make_jobs([replace(TINY, seed=seed) for seed in range(len(script))], tmp_path)
    return sweep(jobs, lambda: backend, Quiet()), backend, jobs


def test_a_dead_workers_run_is_tried_again_and_one_bad_run_stops_nothing(tmp_path):
    rows, backend, jobs = scripted(tmp_path, [["finished"], ["failed"], ["died", "finished"], ["died"] * 3, ["busy"]])
    assert [row.state for row in rows] == ["finished", "failed", "finished", "failed", "busy"]
    assert [row.tries for row in rows] == [1, 1, 2, 3, 1]
    assert sorted(backend.started) == [0, 1, 2, 2, 3, 3, 3, 4]
    assert backend.stopped
    left_behind = json.loads((jobs[3].folder / "failed.json").read_text())
    assert left_behind == {"message": "because, 3 times", "tries": 3, "train_step": 0}
    assert json.loads((jobs[1].folder / "config.json").read_text()) == to_json(jobs[1].config)
    assert not jobs[2].folder.exists()


def test_ctrl_c_stops_the_workers_and_says_what_is_left(tmp_path):
    rows, backend, _ = scripted(tmp_path, [["finished"], ["interrupt"], ["finished"], ["finished"]])
    assert backend.stopped
    assert [row.state for row in rows] == ["finished", "stopped", "stopped", "waiting"]


def test_a_foreign_folder_in_a_runs_place_is_left_alone(tmp_path):
    (job,) = make_jobs([TINY], tmp_path)
    job.folder.mkdir()
    (job.folder / "diary.txt").write_text("mine")
    outcome = perform(job.message())
    assert (outcome.kind, "holds no run" in outcome.message) == ("failed", True)
    rows, _, _ = scripted(tmp_path, [["failed"]])
    assert [row.state for row in rows] == ["failed"]
    assert [path.name for path in job.folder.iterdir()] == ["diary.txt"]


def test_finished_runs_start_no_worker(tmp_path):
    jobs = make_jobs([TINY], tmp_path)
    jobs[0].folder.mkdir()
    (jobs[0].folder / "finished.json").touch()

    def never():
        raise AssertionError

    assert [row.state for row in sweep(jobs, never, Quiet())] == ["skipped"]


def test_a_results_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CaqlError, match="cannot be made"):
        sweep(make_jobs([TINY], tmp_path / "file" / "results"), lambda: None, Quiet())


def test_folders_are_named_after_their_run():
    assert run_name(TINY) == f"pendulum-2-naf-s0-{TINY.id}"
    assert run_name(replace(TINY, seed=1)) != run_name(TINY)


def test_from_spec_to_report_in_miniature(tmp_path, capsys):
    out = tmp_path / "results"
    command = ["table1", "--tasks", "pendulum-0.66", "--methods", "caql-ga,td3", "--seeds", "1", "--workers", "2"]
    sweep_command.main([*command, "--out", str(out), *MINIATURE])
    folders = sorted(path for path in out.iterdir() if not path.name.startswith("."))
    assert [folder.name.rsplit("-", 1)[0] for folder in folders] == ["pendulum-0.66-caql-ga-s0", "pendulum-0.66-td3-s0"]
    for folder in folders:
        assert is_finished(folder)
        assert [step for step, _ in returns(folder)] == [0, 20, 40, 60]
        assert not (folder / "checkpoints").exists()
    assert "2 finished" in capsys.readouterr().out

    before = (folders[0] / "metrics.jsonl").stat().st_mtime_ns
    sweep_command.main([*command, "--out", str(out), *MINIATURE])
    assert "2 skipped" in capsys.readouterr().out
    assert (folders[0] / "metrics.jsonl").stat().st_mtime_ns == before

    report_command.main([str(out), "--out", str(tmp_path / "report")])
    text = (tmp_path / "report" / "report.md").read_text()
    for folder in folders:
        assert f"{best_return([row['return'] for row in read_metrics(folder)]):.1f}" in text
    assert "-342.4 ± 151.6" in text
    assert "96 of 98 cells have no finished run" in text
    assert "physics" in text


class Assassin(Quiet):
    """Kills the worker of the first job as soon as that has a checkpoint and an evaluation to lose."""

    def __init__(self):
        self.backend, self.killed = None, None

    def make(self):
        self.backend = LocalWorkers(2)
        return self.backend

    def update(self, jobs):
        if self.killed is None and jobs[0].train_step >= 40 and checkpoints.checkpoint_files(jobs[0].job.folder):
            worker = next(w for w in self.backend.pool if w.job is not None and w.job == jobs[0].job)
            self.killed = worker.process.pid
            os.kill(self.killed, signal.SIGKILL)


def test_a_run_whose_worker_is_killed_ends_as_if_nothing_had_happened(tmp_path):
    config = replace(TINY, train_steps=2000)
    first = Job(config, tmp_path / "killed", checkpoint_seconds=0.0)
    second = Job(config, tmp_path / "spared", checkpoint_seconds=60.0)
    assassin = Assassin()
    rows = sweep([first, second], assassin.make, assassin)
    assert assassin.killed is not None
    assert [(row.state, row.tries) for row in rows] == [("finished", 2), ("finished", 1)]
    assert len(returns(first.folder)) == 101
    assert returns(first.folder) == returns(second.folder)


def test_workers_compute_on_one_thread(monkeypatch):
    started, popen = [], subprocess.Popen

    def record(*arguments, **names):
        started.append(names["env"])
        return popen(*arguments, **names)

    monkeypatch.setattr(subprocess, "Popen", record)
    backend = LocalWorkers(1)
    worker = backend._hire()
    assert backend.stop() == []
    assert worker.process.returncode == -signal.SIGTERM
    (environment,) = started
    assert "intra_op_parallelism_threads=1" in environment["XLA_FLAGS"]
    for library in ("OMP", "OPENBLAS", "NUMBA"):
        assert environment[f"{library}_NUM_THREADS"] == "1"


def message(config, folder, checkpoint_seconds=60.0):
    return Job(config, folder, checkpoint_seconds=checkpoint_seconds).message()


def test_bad_runs_become_failures_with_a_reason(tmp_path):
    outcome = perform(message(replace(TINY, task="NoSuchTask-v0"), tmp_path / "a"))
    assert outcome.kind == "failed"
    assert "NoSuchTask-v0" in outcome.message
    broken = message(TINY, tmp_path / "b") | {"config": {"task": "Pendulum", "agent": {"name": "naf", "colour": 1}}}
    outcome = perform(broken)
    assert (outcome.kind, "colour" in outcome.message) == ("failed", True)


def test_a_full_disk_leaves_the_last_checkpoint_and_the_run_goes_on_later(tmp_path, monkeypatch):
    write, calls = checkpoints.save_file, []

    def full(*arguments, **names):
        calls.append(1)
        if len(calls) == 2:
            arguments[1].write_bytes(b"half a checkp")
            raise OSError(28, "No space left on device")
        write(*arguments, **names)

    monkeypatch.setattr(checkpoints, "save_file", full)
    folder = tmp_path / "run"
    outcome = perform(message(TINY, folder, checkpoint_seconds=0.0))
    assert outcome.kind == "failed"
    assert "no space left" in outcome.message
    warnings = []
    _, meta = checkpoints.latest_checkpoint(folder, warnings.append)
    assert not warnings
    assert not list((folder / "checkpoints").glob("*.tmp"))
    assert meta["train_step"] < 60
    assert perform(message(TINY, folder)).kind == "finished"
    assert perform(message(TINY, tmp_path / "whole")).kind == "finished"
    assert returns(folder) == returns(tmp_path / "whole")


def test_a_run_that_another_sweep_has_is_left_alone(tmp_path):
    (tmp_path / ".sweep").mkdir()
    with (tmp_path / ".sweep" / "run.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert perform(message(TINY, tmp_path / "run")).kind == "busy"
    assert not (tmp_path / "run").exists()


def is_free(path):
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopping_a_sweep_checkpoints_its_runs_and_leaves_no_worker(tmp_path, number):
    # A shell that starts the tests in the background has them ignore Ctrl-C, and their children with them.
    code = f"""
import signal
from pathlib import Path
from caql.agents.naf import NAFConfig
from caql.config import RunConfig
from caql.experiments.sweep.display import Quiet
from caql.experiments.sweep.local import LocalWorkers
signal.signal(signal.SIGINT, signal.default_int_handler)
from caql.experiments.sweep.sweep import Job, sweep
config = RunConfig("Pendulum", 2.0, 20, 10**6, warm_up=64, evaluate_every=20, evaluation_episodes=1, agent=NAFConfig())
if __name__ == "__main__":
    job = Job(config, Path({str(tmp_path / "run")!r}))
    print([row.state for row in sweep([job], lambda: LocalWorkers(1), Quiet())])
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(read_metrics(tmp_path / "run")) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert output == "['stopped']\n"
    while not is_free(tmp_path / ".sweep" / "run.lock") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert is_free(tmp_path / ".sweep" / "run.lock")
    assert len(checkpoints.checkpoint_files(tmp_path / "run")) == 1


def test_latency_probe_times_every_solver_and_survives_a_restart(tmp_path):
    config = replace(TINY, agent=RunConfig("Pendulum").agent, batch_size=8)
    solvers = {"ga": {}, "mip": {}}
    run(config, tmp_path, True, Probe(tmp_path, solvers))
    rows = [json.loads(line) for line in (tmp_path / "latency.jsonl").read_text().splitlines()]
    assert [row["train_step"] for row in rows] == [20, 40, 60]
    for row in rows:
        assert set(row["milliseconds"]) == set(solvers)
        assert all(value > 0 for value in row["milliseconds"].values())
    run(replace(config, train_steps=80), tmp_path, True, Probe(tmp_path, solvers))
    again = [json.loads(line) for line in (tmp_path / "latency.jsonl").read_text().splitlines()]
    assert again[:3] == rows
    assert [row["train_step"] for row in again] == [20, 40, 60, 80]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Sweep("tabl1"), "did you mean 'table1'"),
        (Sweep(), "which experiment"),
        (Sweep("table1", tasks="hopper-0.55"), "did you mean 'hopper-0.5'"),
        (Sweep("table1", methods="sack"), "did you mean 'sac'"),
        (Sweep("table1", seeds=0), "seeds = 0"),
        (Sweep("table1", workers=0), "workers = 0"),
        (Sweep("table1", set="agent.discount"), "NAME=VALUE"),
        (Sweep("table1", set="agent.discont=1"), "did you mean 'discount'"),
        (Sweep("table1", train_steps=0), "train_steps = 0"),
        (Sweep("table1", train_steps=10**30), "must be a whole number below"),
        (Sweep("table1", seeds=10**9), "seeds = 1000000000 must be at least 1 and at most 1000"),
        (Sweep("table1", workers=10**9), "workers = 1000000000"),
        (Sweep("table1", first_seed=-1), "first_seed = -1 must not be negative"),
        (Sweep("table1", first_seed=2**31 - 5), "every seed less than"),
        (Sweep("table1", checkpoint_seconds=-1.0), "checkpoint_seconds = -1.0"),
        (Sweep("table1", checkpoint_seconds=float("nan")), "checkpoint_seconds = nan"),
        (Sweep("table1", checkpoint_seconds=float("inf")), "checkpoint_seconds = inf"),
        (Sweep("table1", tasks=" , "), "tasks = ' , ' names nothing"),
        (Sweep("table1", methods=""), "methods = '' names nothing"),
        (Sweep("table1", search=0), "search = 0 must be at least 1"),
        (Sweep("table1", out=Path("x" * 5000)), "cannot be a folder: File name too long"),
        (Sweep("table1", out=Path(__file__)), "is a file; give a folder"),
        (Sweep("table1", set="agent.discount=abc"), 'agent.discount = "abc" must be a number'),
        (Sweep("table1", set="=3"), "must be NAME=VALUE"),
        (Sweep("table1", set="task.x=3"), "leads nowhere: task = 'Pendulum'"),
        (Sweep("table1", set="agent=3"), "agent = 3 must be an object"),
        (Sweep("table1", set="agent.hidden=" + "[" * 100_000), "agent.hidden = "),
        (Sweep("table1", set="agent.x.y.z.u.v=1"), "nested too deeply"),
        (Sweep("table1", methods="caql-ga", set="agent.solver.name=exat"), "did you mean 'exact'"),
        (Sweep("table1", methods="caql-ga", set="agent.name=sac"), "agent has no setting"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(CaqlError, match=message):
        planned(options)


def test_options_reach_the_configurations():
    jobs = planned(
        Sweep(
            "table1", tasks="pendulum", methods="sac", seeds=2, first_seed=5, set="agent.hidden=[8, 4]; episode_steps=9"
        )
    )
    assert len(jobs) == 6
    assert {job.config.seed for job in jobs} == {5, 6}
    assert {(job.config.agent.hidden, job.config.episode_steps) for job in jobs} == {((8, 4), 9)}
    assert read_settings("a=x; b = 1.5;") == {"a": "x", "b": 1.5}


def test_ray_without_address_is_ray_on_this_machine():
    assert with_address(["table1", "--ray", "--seeds", "2"]) == ["table1", "--ray=here", "--seeds", "2"]
    assert with_address(["--ray", "table1"]) == ["--ray=here", "table1"]
    assert with_address(["table1", "--ray", "host:6379"]) == ["table1", "--ray", "host:6379"]


def test_list_names_every_experiment(capsys, tmp_path):
    sweep_command.main(["--list", "--out", str(tmp_path), "--seeds", "10"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("table1", "table5", "latency", "hinge", "steps1000"))
    assert "980" in shown
    assert "28,000" in shown


def test_dry_run_starts_nothing(capsys, tmp_path):
    sweep_command.main(
        ["table1", "--tasks", "hopper-1", "--methods", "sac", "--seeds", "2", "--out", str(tmp_path), "--dry-run"]
    )
    assert "2 runs, 2 to do" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_estimates_follow_finished_runs(tmp_path):
    config = replace(TINY, train_steps=1000)
    guessed = costs.seconds(config, {})
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(to_json(config)))
    (folder / "finished.json").write_text('{"train_step": 1000, "seconds": 1.0}')
    seconds = {"physics": 20.0, "updating": 10.0, "max_q": 40.0}
    rows = [{"train_step": 0, "seconds": {}}, {"train_step": 1000, "seconds": seconds}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "finished.json").write_text("{")
    rates = costs.measured(tmp_path)
    assert rates == {("Pendulum", "naf", 20): 0.07}
    assert costs.seconds(replace(config, train_steps=2000), rates) == pytest.approx(140)
    assert 0 < guessed < 70
    assert [costs.in_words(s) for s in (50, 600, 7200, 260_000)] == ["50 s", "10 min", "2.0 h", "3.0 days"]


def test_displays_tell_what_happened(tmp_path, capsys):
    row = Progress(make_jobs([TINY], tmp_path)[0], "failed", "Traceback\nOSError: no luck", 1, 40, -120.0)
    Lines().changed(row)
    assert f"failed {row.job.folder.name} at step 40, return -120.0: OSError: no luck" in capsys.readouterr().out
    running = replace(row, state="running")
    table = LiveTable().table([row, running])
    assert table.row_count == 1
    assert "1 running, 1 failed" in str(table.title)
    assert counts([row, running]) == "1 running, 1 failed"
    # One of two equal runs is done and the other at 40 of 60 steps: a third of one is left after 5/3 in 100 s.
    assert left([row, running], 100.0) == "20 s"


RESULTS = Path(__file__).parents[3] / "results"


@pytest.mark.parametrize(
    ("folder", "command", "runs"),
    [
        ("paper", Sweep("table1", tasks="pendulum", seeds=3), 63),
        ("paper", Sweep("table1", tasks="hopper-0.25,hopper-1", methods="caql-exact,caql-ga,td3,sac", seeds=2), 16),
        ("paper", Sweep("table1", tasks="walker2d-0.5,ant-0.25", methods="caql-ga,sac", seeds=1), 4),
        ("paper", Sweep("table1", tasks="halfcheetah-0.5", methods="caql-ga", seeds=1), 1),
        *[
            ("ablation-40k", Sweep(name, tasks="pendulum-2", seeds=3, train_steps=40_000, set=DECAY), 15)
            for name in ("table3", "table4")
        ],
        ("paper", Sweep("latency", seeds=1), 5),
        ("search-40k", Sweep("table1", tasks="pendulum-1", methods=FIVE, seeds=1, train_steps=40_000, search=8), 40),
        ("search-40k", Sweep("table1", tasks="hopper-1", methods=THREE, seeds=1, train_steps=40_000, search=4), 12),
    ],
)
def test_a_sweep_started_again_recognises_every_committed_run(folder, command, runs):
    jobs = planned(replace(command, out=RESULTS / folder))
    assert len(jobs) == runs
    assert [job.folder.name for job in jobs if not is_finished(job.folder)] == []


def test_runs_that_a_setting_makes_equal_are_run_once():
    assert len(planned(Sweep("table1", tasks="hopper", methods="sac", seeds=3, set="action_range=0.5"))) == 3
    assert len(planned(Sweep("table1", tasks="hopper-1", methods="sac", seeds=3, set="seed=9"))) == 1


def test_what_cannot_work_is_said_before_a_sweep(tmp_path, capsys):
    command = ["hinge", "--tasks", "pendulum-2", "--seeds", "1", "--search", "1", "--out", str(tmp_path), "--dry-run"]
    sweep_command.main(command)
    said = capsys.readouterr().out
    assert said.count("left out, for it cannot work: hinge with lambda = ") == 2
    assert "2 runs, 2 to do" in said


def test_a_run_that_finishes_while_the_sweep_stops_counts_as_finished(tmp_path):
    class Late(Scripted):
        def stop(self):
            return [Ended(job, Outcome("finished")) for job in self.running]

    jobs = make_jobs([replace(TINY, seed=seed) for seed in range(2)], tmp_path)
    backend = Late({0: ["interrupt"], 1: ["interrupt"]})
    assert [row.state for row in sweep(jobs, lambda: backend, Quiet())] == ["finished", "finished"]


@pytest.mark.parametrize(
    "line",
    [
        *[
            "",
            "x",
            "[" * 100_000,
            "3",
            "[]",
            '{"train_step": 5}',
            '{"train_step": [], "return": 1, "seconds": {"a": 1}}',
        ],
        *['{"train_step": 5, "return": "x", "seconds": 3}', '{"train_step": 0, "return": [], "seconds": {"a": 1}}'],
        '{"train_step": 1, "return": null, "seconds": {"a": NaN}}',
    ],
)
def test_damaged_metrics_stop_no_sweep(tmp_path, line):
    (job,) = make_jobs([TINY], tmp_path)
    job.folder.mkdir()
    (job.folder / "config.json").write_text(json.dumps(to_json(TINY)))
    (job.folder / "metrics.jsonl").write_text(line)
    (job.folder / "finished.json").touch()
    assert costs.measured(tmp_path) == {}
    progress = Progress(job)
    progress.refresh()
    assert (progress.train_step, progress.latest_return) == (0, None)
