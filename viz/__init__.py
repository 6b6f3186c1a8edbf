"""What is seen: the neutral graph, its layout, its colours and the page's panels."""

if __name__ == "viz":  # an old script, with the checkout on its path
    raise ImportError("relascope is one package now. Write: import relascope.viz")
