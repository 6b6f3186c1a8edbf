"""TVM's own messages, kept from a person's terminal while it builds."""

from tvm import autotvm  # isort: skip


class quiet:
    """Keeps AutoTVM from saying that it has no record of what is only being asked for."""

    def __enter__(self) -> None:
        self._before = autotvm.GLOBAL_SCOPE.silent
        autotvm.GLOBAL_SCOPE.silent = True

    def __exit__(self, *_: object) -> None:
        autotvm.GLOBAL_SCOPE.silent = self._before
