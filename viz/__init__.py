"""Everything visible: the graph's drawing, the results' rows and charts, and the page."""

if __name__ == "viz":  # an old script, with the checkout on its path
    raise ImportError("relascope is one package now. Write: import relascope.viz")
