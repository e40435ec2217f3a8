"""The same sweep on a Ray cluster: the only file that knows Ray.

Every node must see the results folder under the same path and have caql installed; a run is a Ray task of one
core, whose progress is read from its folder like any other's.
"""

from __future__ import annotations

import importlib
import os
import socket
import threading
import time
from typing import Any

from caql.errors import CaqlError
from caql.experiments.sweep.sweep import Ended, Job
from caql.experiments.sweep.worker import ONE_THREAD, Outcome, perform
from caql.extras import needed_for

CONNECT = 3.0
"""Seconds for the address to accept a connection."""
ANSWER = 10.0
"""Seconds for Ray to answer at it."""
GRACE = 30.0
"""Seconds that runs have to write their checkpoints when the sweep is stopped."""
OBJECT_STORE = 100 * 2**20
"""Bytes of a local Ray's object store: jobs are a few kilobytes of JSON, results travel through folders."""


class RayWorkers:
    """`Backend` of Ray tasks; without an address, on a Ray started here for as long as the sweep lasts."""

    def __init__(self, workers: int | None, address: str | None = None) -> None:
        # No word of this sweep leaves the machine.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        with needed_for("--ray"):
            self.ray: Any = importlib.import_module("ray")
        quiet = {"log_to_driver": False, "logging_level": "error"}
        if address is None:
            local = {"num_cpus": workers or os.cpu_count() or 1, "object_store_memory": OBJECT_STORE}
            self.ray.init(address="local", include_dashboard=False, **local, **quiet)
        else:
            self._connect(address, quiet)
        cores = int(self.ray.cluster_resources().get("CPU", 1))
        self.size = cores if workers is None else min(workers, cores)
        # The environment decides the number of threads, so it must be there before the task's process starts.
        options = {"num_cpus": 1, "max_retries": 0, "runtime_env": {"env_vars": ONE_THREAD}}
        self.perform = self.ray.remote(**options)(_perform)
        self.running: dict[Any, Job] = {}

    @property
    def free(self) -> int:
        return self.size - len(self.running)

    def start(self, job: Job) -> None:
        self.running[self.perform.remote(job.message())] = job

    def wait(self, seconds: float) -> list[Ended]:
        if not self.running:
            time.sleep(seconds)
            return []
        done, _ = self.ray.wait(list(self.running), timeout=seconds)
        return [Ended(self.running.pop(task), self._outcome(task)) for task in done]

    def stop(self) -> list[Ended]:
        ended = []
        for task in self.running:
            self.ray.cancel(task)
        deadline = time.monotonic() + GRACE
        while self.running and time.monotonic() < deadline:
            ended += self.wait(deadline - time.monotonic())
        self.ray.shutdown()
        return ended

    def _outcome(self, task: Any) -> Outcome:
        try:
            return Outcome(*self.ray.get(task))
        except self.ray.exceptions.TaskCancelledError:
            return Outcome("stopped")
        except self.ray.exceptions.RayError as problem:
            return Outcome("died", f"its Ray worker died ({type(problem).__name__})")

    def _connect(self, address: str, quiet: dict[str, Any]) -> None:
        """Ray waits for an absent cluster for a minute or for ever; fifteen seconds are enough."""
        if address != "auto":
            _reach(address)
        failure: list[BaseException] = []

        def connect() -> None:
            try:
                self.ray.init(address=address, **quiet)
            except BaseException as problem:
                failure.append(problem)

        thread = threading.Thread(target=connect, daemon=True)
        thread.start()
        thread.join(ANSWER)
        if thread.is_alive():
            raise CaqlError(f"ray = {address!r} accepts connections, but no Ray answered in {ANSWER:.0f} s")
        if failure:
            reason = str(failure[0]).strip().splitlines()
            raise CaqlError(f"ray = {address!r} could not be joined: {reason[0] if reason else failure[0]!r}")


def _perform(job: dict[str, Any]) -> tuple[str, str]:
    outcome = perform(job)
    return outcome.kind, outcome.message


def _reach(address: str) -> None:
    """Fail at once where nobody listens."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdigit()):
        raise CaqlError(f"ray = {address!r} must be HOST:PORT, ray://HOST:PORT or auto; --ray alone starts Ray here")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT).close()
    except (OSError, OverflowError) as problem:
        raise CaqlError(f"ray = {address!r} does not answer: {problem}") from problem
