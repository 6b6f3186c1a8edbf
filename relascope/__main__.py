"""`python -m relascope`: the page, or a command."""

from relascope.commands.main import main

raise SystemExit(main())
