"""A real kernel of Jupyter's, and what a notebook shows of the cells that it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONG = 300.0  # s


@dataclass
class Shown:
    """What one cell put out: texts, mime bundles in order, and the error's name and message."""

    printed: str = ""
    bundles: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""

    @property
    def html(self) -> str:
        """Of the one bundle that has some."""
        (bundle,) = (b for b in self.bundles if "text/html" in b)
        return bundle["text/html"]


class Kernel:
    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, code: str) -> Shown:
        """Run a cell to its end."""
        shown = Shown()

        def take(message: dict[str, Any]) -> None:
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                shown.printed += content["text"]
            elif kind in ("execute_result", "display_data"):
                shown.bundles.append(content["data"])
            elif kind == "error":
                shown.error = f"{content['ename']}: {content['evalue']}"

        how = {"allow_stdin": False, "timeout": LONG}
        reply = self.client.execute_interactive(code, output_hook=take, **how)
        answer = reply["content"]
        if answer["status"] == "error":  # IPython's own errors of usage are text alone
            shown.error = shown.error or f"{answer['ename']}: {answer['evalue']}"
        else:
            assert not shown.error
        return shown

    def ran(self, code: str) -> Shown:
        """The same of a cell that must not fail."""
        shown = self.run(code)
        assert not shown.error, f"{shown.error}\n{shown.printed}"
        return shown


@contextmanager
def kernel(folder: Path) -> Iterator[Kernel]:
    """A kernel of this Python whose folder is `folder`."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder))
    try:
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
