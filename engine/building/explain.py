"""From an exception of a compiler to an error that a person can act on."""

import os
import re
import stat
import sys

from relascope.core.errors import EngineError
from relascope.engine.building import gpu_faults

_FAILED_KIND = {"step": "pass", "graph_after": "pass", "split": "pass"}


def explain(error: BaseException, method: str) -> EngineError:
    """An unexpected exception as readable text.

    A TVM error has pages of C++ backtrace: keep the last line, and that of the failed check.
    """
    on_gpu = gpu_faults.gpu_fault(error, method)
    if on_gpu is not None:
        return on_gpu
    kind = _FAILED_KIND.get(method, "engine")
    hint = "The engine still works; its log has the details."
    if isinstance(error, RecursionError):
        message = "The program is nested too deeply for a pass written in Python."
        return EngineError(kind, message, method, "Try a smaller model, or a part of this one.")
    if isinstance(error, MemoryError):
        return EngineError(kind, "There was not enough memory.", method, "Try a smaller batch.")
    where, reason = method, _reason(str(error))
    if type(error).__name__ == "DiagnosticError":
        reason = _diagnostics() or reason
    source = re.findall(r'^\s*File "([^"]+)", line (\d+)\s*$', str(error), re.MULTILINE)
    if source:
        where = f"{method}, at {os.path.basename(source[-1][0])}:{source[-1][1]} in TVM"
    name = type(error).__name__
    text = f"{name}: {reason}" if reason and not reason.startswith(name) else reason or name
    return EngineError(kind, text, where=where, hint=hint)


_FRAME = re.compile(r"\s*(\d+: |at |File \"|Stack trace|Traceback \(most recent call last\))")


def _reason(message: str, limit: int = 6) -> str:
    lines = message.strip().splitlines()
    last = max((i for i, line in enumerate(lines) if _FRAME.match(line)), default=-1)
    kept = [line.strip() for line in lines[last + 1 :] if line.strip(" -")]
    if not kept:  # the backtrace comes last
        kept = [line.strip() for line in lines if line.strip() and not _FRAME.match(line)]
    text = "\n".join(kept[:limit])
    # The time and file of a quoted log message mean nothing to the reader.
    text = re.sub(r"\[\d\d:\d\d:\d\d\] \S+?:\d+: ", "", text)
    # A failed check without a message ends in ": ".
    text = re.sub(r" is false:\s*$", " is false", text)
    return text if len(text) <= 1000 else text[:1000] + " …"


def _diagnostics() -> str:
    """What TVM's type checker last wrote to standard error, if that is a file.

    The exception only refers to it. Call this before anything else is written.
    """
    try:
        sys.stderr.flush()
        if not stat.S_ISREG(os.fstat(2).st_mode):
            return ""
        start = max(0, os.fstat(2).st_size - 8192)
        try:
            written = os.pread(2, 8192, start)
        except OSError:  # it is write-only; a sandbox may forbid to reopen it
            with open("/dev/fd/2", "rb", buffering=0) as file:
                file.seek(start)
                written = file.read(8192)
    except (OSError, ValueError, AttributeError):  # closed, or not to be read
        return ""
    text = written.decode(errors="replace")
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()][-12:]
    begin = max((i for i, line in enumerate(lines) if "error: " in line), default=len(lines) - 3)
    return "\n".join(lines[max(0, begin) :][:6]).strip()
