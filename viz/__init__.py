"""Everything visible: the graph's drawing, the results' rows and charts, and the page."""
