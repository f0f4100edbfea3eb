"""Jobs run by processes that may crash or hang without taking the run with them."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

Job = tuple[str, str]  # database and entry


class Worker:
    """A process that runs one job at a time."""

    def __init__(self, work: Callable[[Job], list[Any]]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.deadline = 0.0

    def start(self, job: Job, seconds: float) -> None:
        self.job, self.deadline = job, time.monotonic() + seconds
        self.connection.send(job)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def run(
    jobs: Sequence[Job], work: Callable[[Job], list[Any]], processes: int, seconds: float
) -> Iterator[tuple[Job, list[Any], str]]:
    """Yields each job with what `work` returned, or with an empty list and why there is nothing.

    A job gets `seconds`; one that takes longer, or whose process dies, costs its own result only.
    """
    waiting = deque(jobs)
    workers = [Worker(work) for _ in range(min(processes, len(jobs)))]
    try:
        while waiting or any(worker.job for worker in workers):
            for worker in workers:
                if worker.job is None and waiting:
                    worker.start(waiting.popleft(), seconds)
            busy = [worker for worker in workers if worker.job is not None]
            ready = wait([worker.connection for worker in busy], timeout=1)
            for worker in busy:
                assert worker.job is not None
                job, problem, results = worker.job, "", []
                if worker.connection in ready:
                    try:
                        results, problem = worker.connection.recv()
                    except (EOFError, ConnectionResetError):
                        worker.process.join()
                        problem = f"the process died with exit code {worker.process.exitcode}"
                elif time.monotonic() > worker.deadline:
                    problem = f"took longer than {seconds:.0f} s"
                else:
                    continue
                worker.job = None
                if problem:
                    worker.stop()
                    workers[workers.index(worker)] = Worker(work)
                yield job, results, problem
    finally:
        for worker in workers:
            worker.stop()


def _serve(connection: Connection, work: Callable[[Job], list[Any]]) -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)  # warnings of thousands of samples
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            connection.send((work(job), ""))
        except Exception as error:
            connection.send(([], f"the check itself raised {error!r}"))
