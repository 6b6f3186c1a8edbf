"""The storages that the virtual machine holds in a call of a Relax function.

Bytecode tells when a register takes a storage, a view of one, or gives it up; a run tells sizes.
"""

import re
from collections import Counter
from collections.abc import Hashable, Sequence

from relascope.engine.building.executables import OwnMemory

_CALL = re.compile(r"^\s*call\s+(\S+)\s+in: ?(.*?)\s*dst: (\S+)\s*$")
_ALLOCATE = "vm.builtin.alloc_storage"
_FORGET = "vm.builtin.null_value"
_REGISTER = re.compile(r"%\d+")


def live_bytes(bytecode: str, sizes: Sequence[int]) -> OwnMemory | None:
    """The storages that live at one time, and those that the results keep. TVM's allocator keeps
    one that nobody has any more, for the next of its size. None where the text makes another number
    of storages, as with branches.

    Args:
        bytecode: the text of an executable.
        sizes: bytes of each storage, in the order in which they are made.
    """
    registers: dict[str, frozenset[int]] = {}
    users: dict[int, int] = {}
    alive: Counter[Hashable] = Counter()  # bytes by the size of the storage
    pools: Counter[Hashable] = Counter()
    most = made = 0
    body = bytecode.partition("@main:")[2].partition("\n\n")[0]
    for match in filter(None, map(_CALL.match, body.splitlines())):
        name, given, target = match.groups()
        if target == "%void":
            continue
        if name == _FORGET:
            taken: frozenset[int] = frozenset()
        elif name == _ALLOCATE:
            if made == len(sizes):
                return None
            taken, made = frozenset({made}), made + 1
        else:
            taken = frozenset().union(*(registers.get(r, ()) for r in _REGISTER.findall(given)))
        for storage in taken:
            users[storage] = users.get(storage, 0) + 1
            alive[sizes[storage]] += sizes[storage] if users[storage] == 1 else 0
        most, pools = max(most, alive.total()), pools | alive
        for storage in registers.get(target, ()):
            users[storage] -= 1
            alive[sizes[storage]] -= 0 if users[storage] else sizes[storage]
        registers[target] = taken
    if made != len(sizes):
        return None
    returned = re.search(r"^\s*ret\s+(%\d+)", body, re.MULTILINE)
    kept = registers.get(returned[1], frozenset()) if returned else frozenset()
    results: Counter[Hashable] = Counter()
    for storage in kept:
        results[sizes[storage]] += sizes[storage]
    return OwnMemory(most, results.total(), pools, results)
