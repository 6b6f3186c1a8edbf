"""The pass catalogue, pipelines, cuts, linters, searches, and relascope's passes for each IR."""

if __name__ == "passes":  # an old script, with the checkout on its path
    raise ImportError("relascope is one package now. Write: import relascope.passes")
