"""What runs: everything that imports a TVM, each in a child process of its own."""

if __name__ == "engine":  # an old script, with the checkout on its path
    raise ImportError(
        "relascope is one package now. "
        "Write: from relascope import add_tvm_dispatch, remove_tvm_dispatch"
    )
