"""Where the lines of a large table are found: on this machine's cores, or on a Dask cluster."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs.bulk import Row, Task, run
from relascope.engine.limits import Limits

Connect = Callable[[str], EngineClient]

PATIENCE = 20.0  # seconds that a scheduler may take to answer
_OWN = threading.local()  # engines of a thread, by what they were started with


def on_worker(task: Task, limits: Limits, session: str | None = None) -> Row:
    """Find a line with an engine of this thread's own, which goes on living for the next."""
    engines: dict[Any, EngineClient] = _OWN.__dict__.setdefault("engines", {})
    key = task.engine, session
    if key not in engines:
        engines[key] = EngineClient(task.engine, session)
    engines[key].limit(limits)
    return run(engines[key].call, task)


def in_threads(
    tasks: Sequence[Task], connect: Connect, limits: Limits, workers: int
) -> Iterator[tuple[Task, Row]]:
    """Each task with its line, as they are found, by as many engines as there are workers."""
    engines: list[EngineClient] = []

    def one(task: Task) -> Row:
        known: dict[str, EngineClient] = own.__dict__
        if task.engine not in known:
            known[task.engine] = connect(task.engine)
            engines.append(known[task.engine])
        known[task.engine].limit(limits)
        return run(known[task.engine].call, task)

    own = threading.local()
    pool = ThreadPoolExecutor(workers)
    try:
        waiting = {pool.submit(one, task): task for task in tasks}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for engine in engines:
            engine.close()


def on_dask(
    tasks: Sequence[Task], address: str, limits: Limits, session: str | None = None
) -> Iterator[tuple[Task, Row]]:
    """The same on a cluster, by its scheduler's address; a task whose worker is killed goes to
    another one. EngineError, kind "engine", if Dask is not installed, or nobody answers."""
    try:
        from distributed import Client
        from distributed import as_completed as completed
        from distributed.scheduler import KilledWorker
    except ImportError as missing:
        hint = "pip install 'relascope[dask]'"
        raise EngineError("engine", "Dask is not installed here.", "--dask", hint) from missing
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as wrong:
        hint = "Start one: dask scheduler, and dask worker ADDRESS for each worker."
        raise EngineError("engine", f"No scheduler answers: {wrong}.", address, hint) from wrong
    with client:
        waiting = {
            client.submit(on_worker, t, limits, session, key=f"relascope-{t.key}", pure=False): t
            for t in tasks
        }
        for future in completed(list(waiting)):
            task = waiting[future]
            try:
                yield task, future.result()
            except KilledWorker:
                yield task, _killed(task)


def _killed(task: Task) -> Row:
    about = {"key": task.key, "engine": task.engine, "model": task.model, "pipeline": task.name}
    said = "Every worker that tried it was killed."
    more = {"outcome": "crash", "culprits": [], "verdict": said, "tries": 4, "seconds": 0.0}
    return {**about, **more}
