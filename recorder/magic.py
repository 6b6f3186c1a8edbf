"""`%%relascope record` above a notebook's cell; `%load_ext relascope` defines it."""

import shlex
from importlib import import_module
from typing import Any

from relascope.recorder.record import recording
from relascope.recorder.writing import LEVELS


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext relascope` with IPython's shell."""
    parser = import_module("IPython.core.magic_arguments").MagicArgumentParser("%%relascope")
    parser.add_argument("command", choices=["record"])
    parser.add_argument("name", nargs="?", help="variable for the recording")
    parser.add_argument("-o", dest="path", metavar="FILE", help="file to write the recording to")
    parser.add_argument("--level", choices=LEVELS, help="what to keep of each pass")

    def cell(line: str, code: str) -> None:
        args = parser.parse_args(shlex.split(line))
        usage: type[Exception] = import_module("IPython.core.error").UsageError
        done = None
        try:
            with recording(args.path, args.level or "graphs") as run:
                done = shell.run_cell(code)
                done.raise_error()
        except BaseException as wrong:  # IPython has shown one of the cell
            if done is None:
                raise usage(f"Nothing is recorded: {wrong}") from wrong
        if args.name:
            shell.push({args.name: run})
        import_module("IPython.display").display(run)
        if not done.success:
            raise usage("The recorded cell failed: see its error above.")

    cell.__doc__ = parser.format_help()
    shell.register_magic_function(cell, "cell", "relascope")
