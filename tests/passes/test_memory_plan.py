"""Plans of memory, read and made: what is held when, and what lies on what."""

import pytest

from graphs import graph_of
from relascope.passes.memory_plan import memory_plan, plan_findings

F32 = "float32[3, 7]"
S = "x; c :/bool; s memory.alloc_storage total_space=[84]; "
A, B = (f"{n} memory.alloc_tensor s offset=0; " for n in "ab")
OWN = "o builtin.alloc_tensor; "
P, Q = "p scale x a writes=[1]; ", "q shift x b writes=[1]; "


def planned(text, outputs=""):
    graph = graph_of(text.removesuffix("; "), outputs, ir="relax", of="3x7")
    plan = memory_plan(graph)
    return plan, plan_findings(plan, graph)


def held(plan):
    return [(t.storage, t.write, None if t.results else t.end) for t in plan.tensors]


def test_a_storage_serves_again_once_its_tensor_is_read_for_the_last_time():
    text = S + A + P + OWN + "r use p o writes=[1]; " + B + "q shift r b writes=[1]; e end q"
    plan, found = planned(text, "r")
    assert held(plan) == [(0, 0, 1), (1, 1, None), (0, 2, 3)]
    assert [b for b, _ in plan.storages] == [84, 84]
    assert found == [] and plan.peak() == (168, 1)


NAMES = {
    "itself": "r difference p q o writes=[2]",
    "a view": "v reshape p; r difference v q o writes=[2]",
    "a view of a view": "v memory.view p; w reshape v; r difference w q o writes=[2]",
    "a field of a tuple": "t () x p; i [1] t; r difference i q o writes=[2]",
    "a field of a field": "t () x p; u () t x; i [0] u; j [1] i; r difference j q o writes=[2]",
    "a branch": "f if c p x branches=[0,0]; r difference f q o writes=[2]",
    "what the runtime returns": "f vm.builtin.reshape p; r difference f q o writes=[2]",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_is_held_as_long_as_one_of_its_names_is_read(name):
    *names, last = NAMES[name].split("; ")
    plan, (found,) = planned(S + A + P + "".join(f"{n}; " for n in names) + B + Q + OWN + last)
    assert [pair[:2] for pair in plan.overlaps] == [(0, 1)]
    at = plan.steps.index("q") + 1
    assert found.startswith(f"Storage 1 holds two tensors at step {at}: the {F32} that shift")
    over = f"overwrites the {F32} that scale (step 1) writes, which difference (step {at + 1})"
    assert over in found


def test_another_field_of_a_tuple_is_not_held_with_the_first():
    text = S + A + P + "t () x p; i [0] t; " + B + Q + OWN + "r difference i q o writes=[2]"
    assert planned(text)[1] == []


def test_a_result_is_held_to_the_end():
    plan, (found,) = planned(S + A + P + B + Q, "p q")
    assert held(plan) == [(0, 0, None), (0, 1, None)]
    assert found.endswith("that scale (step 1) writes, which is a result.")


def test_tensors_beside_each_other_in_a_storage_share_nothing():
    for offset, count in {"84": 0, "83": 1, "'n'": 0}.items():  # the last is not known
        beside = B.replace("offset=0", f"offset={offset}")
        text = S + A + P + beside + Q + OWN + "r difference p q o writes=[2]"
        assert len(planned(text)[1]) == count


def test_a_kernel_may_write_over_what_it_reads_itself():
    plan, found = planned(S + A + P + "q add p x writes=[0]; " + OWN + "r use q o writes=[1]")
    assert held(plan) == [(0, 0, 2), (1, 2, None)] and found == []


def test_one_run_comes_to_one_branch_only():
    branch = "p scale x a writes=[1]; i use p a writes=[1]; "
    other = "q shift x b writes=[1]; j use q b writes=[1]; "
    both = S + A + branch + B + other + "f if c i j branches=[3,3]; " + OWN
    plan, found = planned(both + "r end f o writes=[1]")
    assert held(plan) == [(0, 0, 5), (0, 2, 5), (1, 5, None)] and found == []
    one = S + A + P + B + Q + "j use q b writes=[1]; k use p j; f if c j k branches=[3,1]; "
    assert planned(one)[1] == []  # what the other branch reads is never written over
    same = S + A + P + B + Q + "k use p q; f if c k x branches=[3,0]; "
    assert len(planned(same)[1]) == 1


def test_a_storage_of_another_branch_is_not_there():
    text = "x; c :/bool; s memory.alloc_storage total_space=[84]; " + A + P + B + Q
    plan, found = planned(text + "f if c p q branches=[3,2]")
    assert plan.astray == [1]
    where = f"Storage 1 is allocated in another branch of an `if` than the {F32} that shift"
    assert found == [f"{where} (step 2) writes, which uses it."]


def test_open_sizes_are_none_and_what_allocates_nothing_has_no_plan():
    text = "x; s memory.alloc_storage total_space=['4*n']; t vm.alloc_storage size=[8,8]; "
    text += "a memory.alloc_tensor s offset=0 :nx4; b vm.alloc_tensor t offset=0; "
    plan, _ = planned(text + "p scale x a writes=[1]; q shift p b writes=[1]")
    assert [b for b, _ in plan.storages] == [None, None]
    assert [t.type.bytes for t in plan.tensors] == [None, 84]
    assert plan.peak() == (84, 1)
    assert memory_plan(graph_of("x; a exp x")) is None


def test_attributes_that_say_nothing_are_not_believed():
    text = "x; a memory.alloc_tensor x offset='?'; p scale a writes=[7,'a']; i [9] p; "
    plan, found = planned(text + "f if i branches=[40,40]; g if f branches='x'")
    assert (len(plan.storages), len(plan.steps), found) == (1, 1, [])
