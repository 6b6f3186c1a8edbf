"""Relay modules from files: the graph that the live module gives, and what is refused."""

import json
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch
import tvm
from tvm import relay, te

from answers import asking, refused
from gradients import hold_against_itself
from hostile_onnx import honest
from limits import ELEMENTWISE, OUTPUT
from quick import QUICK
from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.building.options import BuildOptions
from relascope.engine.jobs import bisect, node_accuracy
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import Branches
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.relay.building import runtime
from relascope.engine.relay.building.targets import BLAS
from relascope.engine.relay.draw.to_graph import to_graph
from relascope.engine.relay.faults import replay
from relascope.engine.relay.frontend import judge
from relascope.engine.relay.frontend.branches import branches_of
from relascope.engine.relay.frontend.modules import read_program
from relascope.engine.relay.session import RelaySession
from relascope.passes.pipeline import Pipeline
from relascope.passes.relay import builtin
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite
from relascope.passes.search.bisect import IMPORT
from relay_functions import module_of

FLOATS, VERSION = "Tensor[(2, 3), float32]", '#[version = "0.0.5"]\n'
PLAIN = f"def @main(%x: {FLOATS}) {{ tanh(%x) }}"
WEIGHTS = {
    "conv.weight": np.linspace(-1, 1, 108, dtype="float32").reshape(4, 3, 3, 3),
    "1.weight": np.linspace(-0.1, 0.1, 1280, dtype="float32").reshape(5, 256),
}


def module():
    x = relay.var("x", shape=(2, 3, 8, 8))
    first, second = (relay.var(n, shape=w.shape) for n, w in WEIGHTS.items())
    made = relay.nn.conv2d(x, first, padding=(1, 1), channels=4, kernel_size=(3, 3))
    made = relay.nn.relu(relay.nn.bias_add(made, relay.const(np.arange(4, dtype="float32"))))
    made = relay.nn.dense(relay.reshape(made, (2, -1)), second)
    return module_of(relay.tanh(made * relay.const(0.1)), x, first, second)


def product():
    x = relay.var("x", shape=(2, 256))
    weight = relay.var("1.weight", shape=(5, 256))
    return module_of(relay.tanh(relay.nn.dense(x, weight) * relay.const(0.1)), x, weight)


def saved(folder, suffix, mod=None):
    mod = module() if mod is None else mod
    text = mod.astext() if suffix == "relay" else tvm.ir.save_json(mod)
    (folder / f"mod.{suffix}").write_text(text)
    names = {str(p.name_hint) for p in mod["main"].params}
    arrays = {n: tvm.nd.array(w) for n, w in WEIGHTS.items() if n in names}
    (folder / "mod.params").write_bytes(tvm.runtime.save_param_dict(arrays))
    with tarfile.open(folder / "mod.tar", "w") as archive:
        for name in (f"mod.{suffix}", "mod.params"):
            archive.add(folder / name, name)
    return folder / "mod.tar"


def opened(folder, text, suffix="json"):
    (folder / f"mod.{suffix}").write_text(text)
    return read_program(folder / f"mod.{suffix}", ModelSource(f"mod.{suffix}"), silent)


@pytest.mark.parametrize("suffix", ["relay", "json"])
def test_a_saved_module_gives_the_graph_of_the_live_one(tmp_path, suffix):
    found = read_program(saved(tmp_path, suffix), ModelSource("mod.tar"), silent)
    params = {n: tvm.nd.array(w) for n, w in WEIGHTS.items()}
    live = RelayProgram(module(), params, ("x",), 1)
    assert to_graph(found.program)[0] == to_graph(live)[0]
    assert [n for n, _ in found.inputs] == ["x"]
    assert all(np.array_equal(found.tensors[n].numpy(), w) for n, w in WEIGHTS.items())


def test_a_module_that_was_parsed_is_read_from_json_with_its_text(tmp_path):
    mod = relay.parse(VERSION + PLAIN)
    text = tvm.ir.save_json(relay.transform.InferType()(mod))
    assert opened(tmp_path, text).outputs
    document = json.loads(text)
    node = next(n for n in document["nodes"] if "repr_b64" in n)
    for wrong in ("no base 64", node["repr_b64"][12:], 7):
        node["repr_b64"] = wrong
        with pytest.raises(EngineError, match="has no text"):
            opened(tmp_path, json.dumps(document))


def test_its_numbers_are_held_against_pytorchs_operators(tmp_path, monkeypatch):
    session, asked, ask = RelaySession(), [], judge.Beside.ask
    monkeypatch.setattr(judge.Beside, "ask", lambda *given: asked.append(given) or ask(*given))
    source = source_from_file(saved(tmp_path, "relay"))
    assert session.load(source, progress=silent).against == "PyTorch, operator by operator"
    assert not asked, "its process takes seconds to start"
    (found,) = session.check(BuildRequest(source, Pipeline(), QUICK), progress=silent)
    assert asked and found.scale > 0 and found.max_rel < OUTPUT


def test_an_operator_that_reads_beyond_a_tensor_is_at_fault_since_the_import(tmp_path):
    beyond = 'nn.pad(%x, 0f, pad_width=[[1, 1], [0, 1]], pad_mode="reflect")'
    text = PLAIN.replace("tanh(%x)", beyond).replace("(2, 3)", "(1, 2)")
    (tmp_path / "mod.relay").write_text(VERSION + text)
    source, ask = source_from_file(tmp_path / "mod.relay"), asking(RelaySession())
    found = bisect.bisect(ask, "relay", bisect.Question(source, Pipeline.parse("cse"), QUICK))
    assert (found.kind, found.culprits.suspects) == ("wrong", (IMPORT,))


def test_what_pytorch_has_not_is_held_against_the_program_and_the_notes_say_so(tmp_path):
    (tmp_path / "mod.relay").write_text(VERSION + PLAIN.replace("tanh", "nn.fast_softmax"))
    source = source_from_file(tmp_path / "mod.relay")
    info = RelaySession().load(source, True, progress=silent)
    assert info.against == "the imported program"
    assert "PyTorch has no counterpart of nn.fast_softmax" in info.unjudged


def test_its_gradients_are_held_against_itself(tmp_path):
    seen = hold_against_itself(RelaySession(), saved(tmp_path, "relay", product()), "1.weight")
    assert {"nn.dense, as imported", "tanh, as imported"} < seen


def test_the_node_where_a_pass_breaks_it_is_found_by_the_program_itself(tmp_path, monkeypatch):
    def fault(program):
        """Another factor behind the product, which is not known again."""

        def visit(call, args):
            if op_name(call) != "multiply":
                return None
            return relay.multiply(args[0], relay.const(0.11))

        return rewrite(program, visit)

    monkeypatch.setattr(builtin, "cse", fault)
    session, source = RelaySession(), source_from_file(saved(tmp_path, "relay", product()))
    ask = asking(session)
    assert node_accuracy.nodes_against(ask, source) == "the imported program"
    about = (ask, "relay", source, Pipeline.parse("cse"), 0, QUICK)
    (inside,) = node_accuracy.both(*about)
    assert inside.first.title == "multiply" and "not as it was imported" in inside.first.reason
    (dense,) = (n.id for n in inside.graph if n.op == "nn.dense")
    assert inside.errors[dense].max_rel < ELEMENTWISE
    assert "so this may be rounding or a fault" in node_accuracy.verdict(inside)


def changed(folder, change):
    document = json.loads(tvm.ir.save_json(module()))
    change(document["nodes"])
    (folder / "mod.json").write_text(json.dumps(document))
    return folder / "mod.json"


def test_what_could_run_code_or_confuse_tvm_is_refused(tmp_path):
    def first(nodes, kind):
        return next(n for n in nodes if n["type_key"] == kind)

    def circle(nodes):
        call = first(nodes, "relay.Call")
        args = nodes[int(call["attrs"]["args"])]
        args["data"][0] = nodes.index(call)

    def first_operator(nodes):
        first(nodes, "relay.Call")["attrs"]["op"] = str(nodes.index(first(nodes, "IntImm")))

    cases = {
        "has the type": lambda ns: ns.append({"type_key": "runtime.Module"}),
        "has IntImm as its op": first_operator,
        "cycle": circle,
        "calls vm.shape_of": lambda ns: first(ns, "Op").update(repr_str="vm.shape_of"),
    }
    for said, change in cases.items():
        with pytest.raises(EngineError, match=said):
            read_program(changed(tmp_path, change), ModelSource("mod.json"), silent)


def test_what_says_how_a_module_is_built_is_left_out_and_no_way_past_the_checks(tmp_path):
    def built(**fields):
        """With the settings of a build in the module's attributes; `fields` of that map."""

        def change(nodes):
            nodes.append({"type_key": "Executor"})
            keys, data = ["executor"], [len(nodes) - 1]
            nodes.append({"type_key": "Map", "keys": keys, "data": data, **fields})
            nodes.append({"type_key": "DictAttrs", "attrs": {"__dict__": str(len(nodes) - 1)}})
            whole = next(n for n in nodes if n["type_key"] == "IRModule")
            whole["attrs"]["attrs"] = str(len(nodes) - 1)

        return changed(tmp_path, change)

    def device(nodes):
        nodes.append({"type_key": "Target"})
        given = {"target": "9" * 5000, "memory_scope": "0"}
        nodes.append({"type_key": "VirtualDevice", "attrs": given})

    def constant(nodes):
        next(n for n in nodes if n["type_key"] == "relay.Constant")["attrs"]["data"] = "9" * 5000

    assert read_program(built(), ModelSource("mod.json"), silent).outputs
    with pytest.raises(EngineError, match="refers to a node"):
        read_program(built(data=[[]]), ModelSource("mod.json"), silent)
    for change, said in ((device, "refers to a node"), (constant, "has no array")):
        with pytest.raises(EngineError, match=said):
            read_program(changed(tmp_path, change), ModelSource("mod.json"), silent)


@pytest.mark.parametrize(
    ("main", "why"),
    [
        (PLAIN.replace("(2, 3)", "(?, 3)"), "leaves sizes open"),
        (f"def @main(%x: ({FLOATS},)) {{ tanh(%x.0) }}", "not a tensor"),
        (f"def @main(%x: {FLOATS}) {{ ((%x,), %x) }}", "not a tensor or a tuple of tensors"),
        (PLAIN.replace("main", "other"), 'has no function "main". Its functions'),
        (f'def @main(%x: {FLOATS}, Compiler="evil") {{ tanh(%x) }}', "attribute 'Compiler'"),
        (f"def @main(%x: {FLOATS}) {{ vm.shape_of(%x) }}", "is code, not an operator"),
        (f"def @main(%x: {FLOATS}) {{ nonsense(%x) }}", "module: line 2: operator `nonsense` n"),
        (f"def @main(%x: {FLOATS}) {{ nn.dense(%x, %x, nonsense=3) }}", " as a Relay module"),
        (f"def @main(%x: {FLOATS}) {{ add(%x, %y) }}", "a variable that it does not define"),
        (
            f"def @main(%x: {FLOATS}, %y: Tensor[(5), float32]) {{ add(%x, %y) }}",
            "module: line 2: I",
        ),
        (f'def @main(%x: {FLOATS}) {{ add(%x, "', "a string in it does not end"),
        ("def @main(", "module: line 2: "),
    ],
)
def test_what_is_no_plain_function_of_tensors_is_refused(tmp_path, main, why):
    with refused(says=why):
        opened(tmp_path, VERSION + main, "relay")


def test_sizes_left_open_are_given_by_inputs(tmp_path):
    path, kind = tmp_path / "mod.relay", TensorType((4, 3), "float32")
    path.write_text(VERSION + PLAIN.replace("(2, 3)", "(?, 3)"))
    found = read_program(path, replace(source_from_file(path), inputs=(("x", kind),)), silent)
    assert (found.inputs, found.outputs) == ((("x", kind),), (kind,))


def test_what_no_relay_module_is_is_refused(tmp_path):
    script = "@I.ir_module\nclass Module:\n    pass\n"
    with refused(match="is TVMScript, which is Relax", hint="Choose the Relax engine"):
        opened(tmp_path, f"from tvm.script import ir as I\n\n{script}", "py")
    with pytest.raises(EngineError, match="is a Var, not a module"):
        opened(tmp_path, tvm.ir.save_json(relay.var("x", shape=(2,))))
    kernel = tvm.IRModule({"main": module()["main"]})
    x = te.placeholder((2,), name="x")
    kernel["kernel"] = te.create_prim_func([x, te.compute((2,), lambda i: x[i] + 1.0)])
    with pytest.raises(EngineError, match=r"tir\.PrimFunc among its functions"):
        opened(tmp_path, tvm.ir.save_json(kernel))


def test_a_variable_that_nobody_binds_is_not_well_formed():
    x, y = (relay.var(n, shape=(2,)) for n in "xy")
    mod = tvm.IRModule({"main": relay.Function([x], x + y)})
    with pytest.raises(ValueError, match="y is read but bound nowhere"):
        replay.check_formed(mod)


def test_an_onnx_file_is_read(tmp_path):
    path = tmp_path / "small.onnx"
    path.write_bytes(honest().SerializeToString())
    found = read_program(path, source_from_file(path), silent)
    sources = {n.source for n in to_graph(found.program)[0]}
    assert sources >= {"onnx::MatMul", "onnx::Relu"} and found.outputs


def test_arguments_are_in_order_and_named_apart(tmp_path):
    w, x = (relay.var(n, shape=s) for n, s in (("1.weight", (5, 256)), ("x", (2, 256))))
    path = saved(tmp_path, "json", module_of(relay.nn.dense(x, w), w, x))
    found = read_program(path, ModelSource("mod.tar"), silent)
    assert [str(p.name_hint) for p in found.program.main.params] == ["x", "1.weight"]
    one, other = (relay.var("x", shape=(2,)) for _ in range(2))
    with pytest.raises(EngineError, match="have the same name"):
        opened(tmp_path, tvm.ir.save_json(module_of(one + other, one, other)))


def branching():
    """`loop` calls itself until it counted to 5; of the branches of "main", an input decides two,
    one of them between functions, and a computed value one."""
    kind = relay.TensorType((2, 3))
    x, up = relay.var("x", kind), relay.var("up", shape=(), dtype="bool")
    i, z, y, w = relay.var("i", shape=(), dtype="int32"), *(relay.var(n, kind) for n in "zyw")
    one, loop = relay.const(1.0), relay.GlobalVar("loop")
    again = relay.Call(loop, [i + relay.const(1), z + one])
    mod = tvm.IRModule({loop: relay.Function([i, z], relay.If(i < relay.const(5), again, z), kind)})
    tripled = relay.Function([y], y * relay.const(3.0))
    chosen = relay.If(up, tripled, relay.Function([w], relay.negative(w)))
    first = relay.If(up, x + one, relay.Call(chosen, [x]))
    large = relay.greater(relay.sum(first), relay.const(0.0))
    body = relay.Call(loop, [relay.const(0), relay.If(large, relay.tanh(first), relay.exp(first))])
    mod["main"] = relay.Function([x, up], relay.Tuple([body, relay.logical_not(up)]))
    return relay.transform.InferType()(mod)


def expected(x, up, large=None):
    first = x + 1 if up else -x
    large = first.sum() > 0 if large is None else large
    return (np.tanh(first) if large else np.exp(first)) + 5


def test_branches_recursion_and_functions_as_values_are_run(tmp_path):
    (tmp_path / "mod.json").write_text(tvm.ir.save_json(branching()))
    source, session = source_from_file(tmp_path / "mod.json"), RelaySession()
    info = session.load(source, True, progress=silent)
    assert info.branches == Branches(("up",), ("if_0",), 1)
    x = np.array([[0.5, -1.0, 2.0], [0.1, 0.0, -0.3]], "float32")
    for sides in ((), (("if_0", True),), (("if_0", False),)):
        program = read_program(tmp_path / "mod.json", replace(source, sides=sides), silent).program
        targets = (QUICK, f"llvm {BLAS} -schedules=relascope")[: 1 if sides else 2]
        built = [runtime.build(program, BuildOptions(target)) for target in targets]
        for up in (True, False):
            values = {"x": torch.from_numpy(x), "up": torch.tensor(up)}
            wanted = expected(x, up, *(side for _, side in sides))
            for one in built:
                made, no = one.run(values)
                np.testing.assert_allclose(made.numpy(), wanted, atol=ELEMENTWISE)
                assert no.item() is not up
            if up and sides:  # one of them is enough
                continue
            again = replay.Run(program.mod, {n: v.numpy() for n, v in values.items()}, QUICK)
            again()
            np.testing.assert_allclose(again.results()[0], wanted, atol=ELEMENTWISE)
    request = BuildRequest(source, Pipeline.parse("cse|fuse"), QUICK)
    assert all(c.max_rel < OUTPUT for c in session.check(request, progress=silent))
    for ask in (session.profile, session.tasks, session.compile):
        with refused("target", "run on Relay's virtual machine"):
            ask(BuildRequest(source, Pipeline(), "llvm"), progress=silent)


def test_a_function_of_its_own_that_calls_itself_is_refused():
    kind, f = relay.TensorType((2,)), relay.Var("f")
    x, z = relay.var("x", kind), relay.var("z", kind)
    small = relay.less(relay.sum(z), relay.const(9.0))
    inner = relay.Function([z], relay.If(small, relay.Call(f, [z + z]), z), kind)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Let(f, inner, relay.Call(f, [x])), kind))
    program = RelayProgram(relay.transform.InferType()(mod), {}, ("x",), 1)
    assert branches_of(program.mod) == Branches((), (), 1)
    with refused("target", "the inner function f calls itself"):
        runtime.build(program, BuildOptions("llvm"))
