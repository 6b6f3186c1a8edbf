"""The page, one file a tab. Panels ask a `Desk` for results and draw them; they know no TVM."""
