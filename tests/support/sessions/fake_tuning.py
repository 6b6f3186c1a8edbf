"""Tuning without a TVM: two tasks, times that fall trial by trial, and real records of them."""

import time
import uuid
from dataclasses import replace

from relascope.core.graph import TensorType
from relascope.engine.protocol import records
from relascope.engine.protocol.records import Untuned
from relascope.engine.protocol.tuning import Trial, TuneResult, TuneTask

SLOW_TRIALS = 777  # so many trials take a minute
TASKS = {
    "dense-0a1b": ("dense", (8, 32), ("d0",), 1, 8192.0, 0.8),
    "fused_relu_dense-2c3d": ("fused_relu_dense", (8, 4), ("r", "d1"), 1, 2048.0, 0.1),
}
"""By key: name, shape of the result, nodes, calls, FLOPs, milliseconds without a record."""


class FakeTuning:
    """`tasks` and `tune` of a session; the second trial of each task fails."""

    ir = "relay"

    def tasks(self, request, *, progress):
        progress(0.5, "running the forward, kernel by kernel")
        book = records.read(self._place(request))
        found = []
        for key, (name, shape, nodes, calls, flops, ms) in TASKS.items():
            about = key, name, (TensorType(shape, "float32"),), nodes, calls, flops, None
            before, best = book.before_ms(key) or ms, book.best_ms(key)
            found.append(TuneTask(*about, before, best, len(book.of(key)), book.takes(key)))
        spent = [t.best_ms if t.uses_record else t.before_ms for t in found]
        shares = [ms / sum(spent) for ms in spent]
        return tuple(replace(t, share=share) for t, share in zip(found, shares, strict=True))

    def tune(self, request, keys, trials, *, progress):
        place, run, began = self._place(request), uuid.uuid4().hex, time.time()
        chosen, done = keys or tuple(TASKS), []
        for index, key in enumerate(chosen):
            name, *_, before = TASKS[key]
            book = records.read(place)
            earlier, count = book.best_ms(key), len(book.of(key))
            records.add(place, records.UNTUNED, [Untuned(key, run, count, before)])
            best = earlier
            for k in range(trials):
                if trials == SLOW_TRIALS:
                    time.sleep(0.08)
                number = count + k + 1
                ms = None if number == 2 else before * (0.3 + 0.9 / number)
                best = min((b for b in (best, ms) if b is not None), default=None)
                seconds = time.time() - began
                error = "" if ms else "It took too long."
                trial = Trial(key, run, number, ms, best, seconds, f"{key} {number}", error)
                records.add(place, records.CURVE, [trial])
                words = f"{name}: trial {k + 1} of {trials}, best {best:.4g} ms"
                progress((index + (k + 1) / trials) / len(chosen), words)
            done.append(records.read(place).tuned(run, key, name, earlier))
        seconds, machine = time.time() - began, ("a test machine", request.target)
        threads = request.threads or 2
        return TuneResult(run, str(place), *machine, threads, tuple(done), seconds)

    def _place(self, request):
        return records.folder(self.ir, "0.0.test", request.target, request.threads)
