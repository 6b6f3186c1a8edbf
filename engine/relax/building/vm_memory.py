"""The storages that the virtual machine holds while it calls a Relax function.

The bytecode shows when a register gets a storage or a view of one, and when it releases it; a run
shows the sizes.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import tvm

from relascope.engine.building.executables import OwnMemory


@contextmanager
def in_torchs_memory() -> Iterator[None]:
    """Machines made in this context use PyTorch's allocator, which counts their storages."""
    view = tvm.get_global_func("runtime.TVMTensorCreateView")
    at_once = tvm.get_global_func("vm.builtin.ensure_zero_offset")

    def storage(machine: Any, size: Any, *about: Any) -> Any:
        return tvm.runtime.from_dlpack(torch.empty(int(size[0]), dtype=torch.uint8))

    def tensor(storage: Any, offset: int, shape: Any, dtype: Any, *about: Any) -> Any:
        return at_once(view(storage, shape, dtype, offset))

    made = {_ALLOCATE: storage, "vm.builtin.alloc_tensor": tensor}
    known = {name: tvm.get_global_func(name) for name in made}
    try:
        for name, function in made.items():
            tvm.register_global_func(name, function, override=True)
        yield
    finally:
        for name, function in known.items():
            tvm.register_global_func(name, function, override=True)


_CALL = re.compile(r"^\s*call\s+(\S+)\s+in: ?(.*?)\s*dst: (\S+)\s*$")
_ALLOCATE = "vm.builtin.alloc_storage"
_MACHINE = "vm.builtin."
_FIELD = "vm.builtin.tuple_getitem"
_PLACE = re.compile(r"(%\d+), i(\d+)")
_FORGET = "vm.builtin.null_value"
_REGISTER = re.compile(r"%\d+")


def live_bytes(
    bytecode: str, sizes: Sequence[int], spent: Sequence[int] = (), register: int = 0
) -> OwnMemory | None:
    """The storages that live at one time, and those that the results keep. TVM's allocator keeps
    a released one for the next of its size. None if the text makes another number of storages, as
    with branches.

    Args:
        bytecode: the text of an executable.
        sizes: bytes of each storage, in order of creation.
        spent: bytes of each argument that is given up after its last reader.
        register: the one of the array that holds these arguments.
    """
    sizes = [*sizes, *spent]  # the latter already exist
    count = len(sizes) - len(spent)
    registers: dict[str, frozenset[int]] = {}
    users: dict[int, int] = {}
    alive: Counter[Hashable] = Counter()  # bytes by the size of the storage
    for size in spent:
        alive[size] += size
    arguments = +alive
    pools: Counter[Hashable] = Counter()
    most = made = 0
    body = bytecode.partition("@main:")[2].partition("\n\n")[0]
    for match in filter(None, map(_CALL.match, body.splitlines())):
        name, given, target = match.groups()
        if target == "%void":
            continue
        # Functions of the machine return views; others write into their arguments.
        given = given if name.startswith(_MACHINE) else ""
        if name == _FORGET:
            taken: frozenset[int] = frozenset()
        elif name == _ALLOCATE:
            if made == count:
                return None
            taken, made = frozenset({made}), made + 1
        elif name == _FIELD and (place := _PLACE.fullmatch(given)) and place[1] == f"%{register}":
            taken = frozenset({count + int(place[2])} if spent else ())
        else:
            taken = frozenset().union(*(registers.get(r, ()) for r in _REGISTER.findall(given)))
        for storage in taken:
            users[storage] = users.get(storage, 0) + 1
            new = users[storage] == 1 and storage < count
            alive[sizes[storage]] += sizes[storage] if new else 0
        most, pools = max(most, alive.total()), pools | alive
        for storage in registers.get(target, ()):
            users[storage] -= 1
            alive[sizes[storage]] -= 0 if users[storage] else sizes[storage]
        registers[target] = taken
    if made != count:
        return None
    returned = re.search(r"^\s*ret\s+(%\d+)", body, re.MULTILINE)
    kept = registers.get(returned[1], frozenset()) if returned else frozenset()
    results: Counter[Hashable] = Counter()
    for storage in kept:
        results[sizes[storage]] += sizes[storage]
    return OwnMemory(most, results.total(), pools, results, arguments)
