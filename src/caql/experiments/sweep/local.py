"""Workers on this machine: a pool of processes that outlive their runs, and are replaced when they die."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass

from caql.experiments.sweep.sweep import Ended, Job
from caql.experiments.sweep.worker import ONE_THREAD, Outcome

GRACE = 30.0
"""Seconds that workers have to write their checkpoints when the sweep is stopped."""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    job: Job | None = None
    answer: bytes = b""


class LocalWorkers:
    """`Backend` of processes."""

    def __init__(self, workers: int) -> None:
        self.size = workers
        self.pool: list[_Worker] = []
        self.selector = selectors.DefaultSelector()

    @property
    def free(self) -> int:
        return self.size - sum(worker.job is not None for worker in self.pool)

    def start(self, job: Job) -> None:
        worker = next((worker for worker in self.pool if worker.job is None), None) or self._hire()
        worker.job, worker.answer = job, b""
        assert worker.process.stdin is not None
        # A worker that died while it was idle: its end of the pipe says so, and the run is tried again.
        with contextlib.suppress(BrokenPipeError):
            worker.process.stdin.write(json.dumps(job.message()).encode() + b"\n")
            worker.process.stdin.flush()

    def wait(self, seconds: float) -> list[Ended]:
        ended = []
        for key, _ in self.selector.select(seconds):
            worker: _Worker = key.data
            block = os.read(key.fd, 1 << 16)
            worker.answer += block
            if worker.job is not None and worker.answer.endswith(b"\n"):
                ended.append(Ended(worker.job, Outcome(**json.loads(worker.answer))))
                worker.job, worker.answer = None, b""
            if not block:
                status = self._dismiss(worker)
                if worker.job is not None:
                    how = f"signal {-status}" if status < 0 else f"status {status}"
                    ended.append(Ended(worker.job, Outcome("died", f"its worker ended with {how}")))
        return ended

    def stop(self) -> list[Ended]:
        ended = []
        for worker in self.pool:
            worker.process.terminate()
        deadline = time.monotonic() + GRACE
        while self.pool and time.monotonic() < deadline:
            ended += self.wait(deadline - time.monotonic())
        for worker in list(self.pool):
            worker.process.kill()
            self._dismiss(worker)
        self.selector.close()
        return ended

    def _hire(self) -> _Worker:
        process = subprocess.Popen(
            [sys.executable, "-m", "caql.experiments.sweep.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD},
            # Ctrl-C reaches the sweep alone, which then stops its workers in order.
            start_new_session=True,
        )
        worker = _Worker(process)
        assert process.stdout is not None
        self.selector.register(process.stdout, selectors.EVENT_READ, worker)
        self.pool.append(worker)
        return worker

    def _dismiss(self, worker: _Worker) -> int:
        self.pool.remove(worker)
        assert worker.process.stdout is not None
        assert worker.process.stdin is not None
        self.selector.unregister(worker.process.stdout)
        worker.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            worker.process.stdin.close()
        return worker.process.wait()
