"""The command line: `python cli.py COMMAND …`, the same as `relascope COMMAND …`."""

from relascope.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main())
