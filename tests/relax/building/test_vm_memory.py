"""What Relax's virtual machine holds in a call, from its bytecode and from runs."""

import torch

from relascope.engine.building.options import BuildOptions
from relascope.engine.protocol.source import ModelSource
from relascope.engine.relax.building import runtime
from relascope.engine.relax.building.vm_memory import live_bytes
from relascope.engine.relax.session import RelaxSession
from relascope.passes.catalogue import default_pipeline

BYTECODE = """@main:
  call  vm.builtin.check_tensor_info in: %0, i2 dst: %void
  call  vm.builtin.alloc_storage in: %vm, c[2], i0, c[3] dst: %1
  call  vm.builtin.alloc_tensor in: %1, i0, c[5] dst: %2
  call  vm.builtin.null_value in:              dst: %1
  call  first            in: %0, %2 dst: %void
  call  vm.builtin.alloc_storage in: %vm, c[2], i0, c[3] dst: %3
  call  vm.builtin.alloc_tensor in: %3, i0, c[5] dst: %4
  call  vm.builtin.null_value in:              dst: %3
  call  second           in: %2, %4 dst: %void
  call  vm.builtin.null_value in:              dst: %2
  call  vm.builtin.alloc_storage in: %vm, c[10], i0, c[3] dst: %1
  call  vm.builtin.alloc_tensor in: %1, i0, c[11] dst: %2
  call  vm.builtin.null_value in:              dst: %1
  call  third            in: %4, %2 dst: %void
  call  vm.builtin.make_tuple in: %2, %2 dst: %5
  call  vm.builtin.null_value in:              dst: %2
  call  vm.builtin.null_value in:              dst: %4
  ret   %5

@other:
  call  vm.builtin.alloc_storage in: %vm, c[2], i0, c[3] dst: %1
  ret   %1
"""


def test_a_storage_lives_as_long_as_something_is_of_it():
    found = live_bytes(BYTECODE, [100, 10, 1])
    assert found is not None
    assert (found.peak, found.results, found.kept) == (110, 1, 111)
    assert live_bytes(BYTECODE, [1, 10, 100]).peak == 110  # the first is given up before the last
    assert live_bytes(BYTECODE, [100, 10, 100]).kept == 110  # and serves again for one of its size


def test_bytecode_of_another_run_is_not_guessed_at():
    assert live_bytes(BYTECODE, [100, 10]) is None
    assert live_bytes(BYTECODE, [100, 10, 1, 1]) is None


def test_a_chain_needs_two_of_its_tensors_at_a_time():
    session, source = RelaxSession(), ModelSource("mlp")
    program = session.program_after(source, default_pipeline("relax", False))
    made = runtime.build(program, BuildOptions("llvm"))
    values = {n: torch.zeros(t.shape) for n, t in made.arguments.items()}
    found = made.own_memory(values)
    # 8x64 to 8x256, a layer norm of that, and 8x10: in float32.
    assert found.results == 8 * 10 * 4
    assert found.peak == 2 * 8 * 256 * 4
    before = [made.run(values)[0] for _ in range(2)]
    assert torch.equal(*before)  # watching leaves nothing behind
