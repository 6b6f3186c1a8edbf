"""The page as `relascope` serves it, without the gate before it."""

from relascope.viz.page import main

main()
