"""The plan of TVM's graph executor: the order of its kernels, and where their results lie.

TVM allocates each storage separately, even those of results and arguments, although the executor is
pointed at other memory for these. It asks for a storage first, because executors may share
parameters: here it is given one.
"""

import json
import mmap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any

import numpy as np
import torch
import tvm
from tvm.contrib import graph_executor

from relascope.core.graph import TensorType
from relascope.engine.building import executables
from relascope.engine.cpu_kernels.buffer_pool import LARGE, SHARED, BufferPool
from relascope.engine.relay.building.in_place import overwritable
from relascope.engine.relay.kernels import blas
from relascope.passes.kernel_memory import KernelLives

_SLACK = 64
"""The part of their bytes by which results and arguments may pass their lowest peak: a stop between
kernels takes 10 us."""
Piece = tuple[int, list[Any], list[Any]]
"""Its last node, the results that it writes, and the arguments that it is the last to read."""


class Workspace:
    """Memory on the CPU for intermediate results, shared by functions that run in turn (`turn`);
    `pool` is for their results, and None for a pool of each."""

    def __init__(self, pool: BufferPool | None = None) -> None:
        self.turn, self.pool = Lock(), pool
        self._nbytes = 0
        self._memory = torch.empty(0, dtype=torch.uint8)

    def reserve(self, nbytes: int) -> None:
        """Make it at least this large from the next `memory` on."""
        self._nbytes = max(self._nbytes, nbytes)

    def memory(self) -> torch.Tensor:
        if self._memory.nbytes < self._nbytes:
            self._memory = torch.empty(self._nbytes, dtype=torch.uint8)
        return self._memory


class Passing(Workspace):
    """Memory for one call."""

    def memory(self) -> torch.Tensor:
        return torch.empty(self._nbytes, dtype=torch.uint8)


SHARED_SPACE = Workspace(SHARED.pool)
"""Of all modules that a process has dispatched."""


def entry_bytes(layout: Mapping[str, Any]) -> list[int]:
    """Bytes of each entry of an executor's plan: of each result of each of its nodes."""
    shapes = layout["attrs"]["shape"][1]
    dtypes = ["bool" if t == "uint1" else t for t in layout["attrs"]["dltype"][1]]
    return [TensorType(tuple(s), t).bytes or 0 for s, t in zip(shapes, dtypes, strict=True)]


class Storages:
    """The storages of an executor on the CPU, laid out in a workspace.

    A kernel's result takes the place of an argument that it may overwrite and no other reads. The
    rest are placed from the largest on, each at the lowest offset that is free while it lives
    (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", arXiv
    2001.03288).

    `layout` is the executor's plan, `elsewhere` are entries that the executor is pointed at in
    other memory before each run, and `constants` arrays of entries."""

    def __init__(
        self,
        layout: Mapping[str, Any],
        elsewhere: Collection[int],
        constants: Mapping[int, Any],
        workspace: Workspace,
    ) -> None:
        sizes = entry_bytes(layout)
        owners = _in_place(layout, sizes, {*constants, *elsewhere})
        self._layout, self._ids, self.lives = layout, owners, _lives(layout, owners)
        self._spans: dict[int, int] = {}  # bytes of the largest entry
        for owner, size in zip(owners, sizes, strict=True):
            self._spans[owner] = max(self._spans.get(owner, 1), size)
        self._constants = constants
        ours = self._spans.keys() - constants.keys() - set(elsewhere)
        self._places = _places({o: (*self.lives[o], self._spans[o]) for o in ours})
        self.nbytes = max((self._places[o] + self._spans[o] for o in ours), default=0)
        self.workspace = workspace
        workspace.reserve(self.nbytes)

    def executor(self, library: Any, device: Any, start: int) -> Any:
        """A graph executor of the plan on these storages, in memory from an address on."""
        # Memory that nothing may touch: an access ends the process and harms no other memory.
        nowhere = mmap.mmap(-1, max(self._spans.values(), default=1), prot=0)
        self._nowhere = np.frombuffer(nowhere, dtype=np.uint8)
        arrays = dict(self._constants)
        for storage, span in self._spans.items():
            if storage not in arrays:
                place = self._places.get(storage)
                at = self._nowhere.ctypes.data if place is None else start + place
                view = torch.utils.dlpack.to_dlpack(blas.memory(at, span))
                arrays[storage] = tvm.nd.from_dlpack(view)
        layout = self._layout
        numbers = {owner: number for number, owner in enumerate(self._spans)}
        layout["attrs"]["storage_id"][1] = [numbers[owner] for owner in self._ids]
        listed = [arrays[owner] for owner in numbers]
        # As executors share parameters, TVM asks for the memory of each storage by its number.
        asked = tvm.runtime.convert(lambda module, number, *_: listed[number])
        about = json.dumps(layout), library.get_lib(), asked
        create = tvm.get_global_func("tvm.graph_executor_debug.create")
        made = graph_executor.GraphModule(create(*about, device.device_type, device.device_id))
        made.run_to = made["execute_node"]
        return made


def pieces(
    count: int, lives: Mapping[str | int, tuple[int, int]], sizes: Mapping[str | int, int]
) -> list[Piece]:
    """The nodes of a plan, `count`, in as few pieces as keep what lies elsewhere near its lowest
    peak. `lives` have the first and last node of the results, by index, and of the arguments to
    give up, by name, unless a result is a view of them."""
    kinds = [(of[isinstance(key, str)], isinstance(key, str), key) for key, of in lives.items()]
    events = sorted(event for event in kinds if event[0] < count)
    held, freed = sum(sizes[key] for _, spent, key in events if spent), 0
    change = (-sizes[key] if spent else sizes[key] for _, spent, key in events)
    most = max(accumulate(change, initial=held))
    most += max(LARGE, sum(sizes[key] for key in lives) // _SLACK)
    found: list[Piece] = [(count - 1, [], [])]
    for node, spent, key in events:
        if freed and held + sizes[key] > most and not spent:
            found[-1:] = (node - 1, *found[-1][1:]), (count - 1, [], [])
            held, freed = held - freed, 0
        held, freed = (held, freed + sizes[key]) if spent else (held + sizes[key], freed)
        (found[-1][2] if spent else found[-1][1]).append(key)
    return found


def _lives(layout: Mapping[str, Any], owners: Sequence[int]) -> list[tuple[int, int]]:
    """The first and last node of each entry that is an owner: -1 where none makes or reads it, and
    the number of nodes where it is a result."""
    nodes, rows = layout["nodes"], layout["node_row_ptr"]
    born, dies = [-1] * rows[-1], [-1] * rows[-1]
    for index, node in enumerate(nodes):
        for i, j, *_ in node["inputs"]:
            dies[owners[rows[i] + j]] = index
        if node["op"] != "null" and not is_view(node):
            for owner in owners[rows[index] : rows[index + 1]]:
                born[owner], dies[owner] = index if born[owner] < 0 else born[owner], index
    for node, index, *_ in layout["heads"]:
        dies[owners[rows[node] + index]] = len(nodes)
    return [*zip(born, dies, strict=True)]


def _in_place(layout: Mapping[str, Any], sizes: Sequence[int], others: set[int]) -> list[int]:
    """The owner of each entry, where a kernel writes over what it may and is the last to read, but
    not over `others`."""
    owners, rows = owners_of(layout), layout["node_row_ptr"]
    lives = _lives(layout, owners)
    taken: dict[int, int] = {}
    for index, node in enumerate(layout["nodes"]):
        made, places = rows[index], overwritable(node)
        read = [owners[rows[i] + j] for i, j, *_ in node["inputs"]]
        kept = others.union(o for place, o in enumerate(read) if place not in places)
        for owner in () if made in others else {*read} - kept:
            born, dies = lives[owner]
            if born >= 0 and dies == index and sizes[owner] == sizes[made]:
                taken[made] = taken.get(owner, owner)
                break
    return [taken.get(owner, owner) for owner in owners]


def _places(lives: Mapping[int, tuple[int, int, int]]) -> dict[int, int]:
    """The offset of each storage in a workspace, by its first and last kernel and its bytes."""
    found: dict[int, int] = {}
    taken = np.zeros((4, len(lives)), dtype=np.int64)  # first, last, begin, end of those placed
    for count, (storage, (first, last, size)) in enumerate(
        sorted(lives.items(), key=lambda item: (-item[1][2], item[1]))
    ):
        placed = taken[:, :count]
        beside = placed[2:, (placed[0] <= last) & (placed[1] >= first)]
        at = 0
        for begin, end in beside[:, np.argsort(beside[0])].T.tolist():
            if begin - at >= size:
                break
            at = max(at, end)
        found[storage] = at
        aligned = -(-size // executables.ALIGNMENT) * executables.ALIGNMENT
        taken[:, count] = first, last, at, at + aligned
    return found


def is_view(node: Mapping[str, Any]) -> bool:
    """Whether a node of an executor's plan stands for a reshape, which it skips."""
    return bool(node.get("attrs", {}).get("func_name") == "__nop")


def owners_of(layout: Mapping[str, Any]) -> list[int]:
    """For each entry of an executor's plan, the entry whose memory it views, or itself."""
    rows = layout["node_row_ptr"]
    owners = list(range(rows[-1]))
    for index, node in enumerate(layout["nodes"]):
        if is_view(node):
            ((of, which, *_),) = node["inputs"]
            owners[rows[index]] = owners[rows[of] + which]
    return owners


def ordered(layout: dict[str, Any], spends: Collection[str]) -> dict[str, Any]:
    """An executor's plan whose nodes run where they hold least (`KernelLives.best_order`), with the
    arguments that the call gives up."""
    nodes, rows = layout["nodes"], layout["node_row_ptr"]
    owners, sizes = owners_of(layout), entry_bytes(layout)
    heads = [owners[rows[i] + j] for i, j, *_ in layout["heads"]]
    given = [i for i, n in enumerate(nodes) if n["op"] == "null"]
    spent = {rows[i] for i in given if nodes[i]["name"] in spends}
    others = spent.union(heads[i] for i in views(layout)[1])
    read = [{owners[rows[i] + j] for i, j, *_ in n["inputs"]} for n in nodes]
    made = [{owners[e] for e in range(rows[i], rows[i + 1])} for i in range(len(nodes))]
    operators = [i for i, n in enumerate(nodes) if n["op"] != "null"]
    sources = {i: {s for s, *_ in nodes[i]["inputs"]} - {*given} for i in operators}

    for entry in {rows[i] for i in given}.union(others) - (others if spent else set()):
        sizes[entry] = 0  # it is there before all kernels, and after them
    of = dict(enumerate(read)), dict(enumerate(made)), dict(enumerate(sizes))
    apart = others if spent else ()
    kernels = KernelLives(operators, sources, *of, {*heads}, spent, apart=apart)
    return _renumbered(layout, [*given, *kernels.best_order])


def _renumbered(layout: dict[str, Any], order: Sequence[int]) -> dict[str, Any]:
    """An executor's plan with its nodes in another order."""
    place = {node: index for index, node in enumerate(order)}
    rows, start = [0], layout["node_row_ptr"]
    for node in order:
        rows.append(rows[-1] + start[node + 1] - start[node])
    entries = [e for node in order for e in range(start[node], start[node + 1])]

    def moved(which: Sequence[int]) -> list[int]:
        return [place[which[0]], *which[1:]]

    nodes = [layout["nodes"][node] for node in order]
    return {
        "nodes": [n | {"inputs": [*map(moved, n["inputs"])]} for n in nodes],
        "arg_nodes": sorted(place[node] for node in layout["arg_nodes"]),
        "heads": [*map(moved, layout["heads"])],
        "attrs": {
            name: [kind, [values[e] for e in entries]]
            for name, (kind, values) in layout["attrs"].items()
        },
        "node_row_ptr": rows,
    }


def views(layout: Mapping[str, Any]) -> tuple[set[int], set[int]]:
    """Node numbers of inputs that must be copied, and numbers of outputs that need not be."""
    nodes, heads = layout["nodes"], [(h[0], h[1]) for h in layout["heads"]]
    skipped = {i for i, n in enumerate(nodes) if is_view(n)}
    viewed = {(s[0], s[1]) for i in skipped for s in nodes[i]["inputs"]}
    made = {i for i, n in enumerate(nodes) if n["op"] == "tvm_op"} - skipped
    alone = {h for h, count in Counter(heads).items() if count == 1 and h[0] in made} - viewed
    outputs = set(map(heads.index, alone))
    return {h for h, _ in heads if nodes[h]["op"] == "null"}, outputs
