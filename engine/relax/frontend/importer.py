"""From a traced PyTorch model to Relax.

TVM's importer, mended by `engine.relax.frontend.converters`, converts the trace as an FX graph of
ATen operators (`engine.pytorch.trace_to_fx`). Arguments have PyTorch's names.

Variables are named after their operator and its place in PyTorch's order of execution ("linear_12",
"linear_12_1"), which passes keep; `RelaxProgram.provenance` maps names to origins."""

from dataclasses import replace

import tvm
from tvm import relax

from relascope.engine.protocol.session import Progress
from relascope.engine.pytorch.in_place import check_in_place
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.operators.edges import refused_gradient
from relascope.engine.pytorch.trace_to_fx import note_values, trace_to_fx
from relascope.engine.pytorch.unlike import note_updates
from relascope.engine.relax.frontend.converters import Converter, dtype_name, variable
from relascope.engine.relax.frontend.joint import JointTrace
from relascope.engine.relax.frontend.joint_converters import JointConverter
from relascope.passes.relax.ir.program import RelaxProgram


def import_model(model: Model, progress: Progress) -> RelaxProgram:
    """Convert a traced model to a typed Relax module.

    "main" takes the model's inputs, then the parameters and buffers that the trace reads, in
    PyTorch's order and by its names, then masks of active dropouts and other operators'
    draws. It returns the outputs, then the new values of buffers that a run changes.

    With PyTorch's gradient, the program is joint: after the masks it takes a grad_out for each
    floating-point output, and it also returns the gradients of floating-point inputs and
    parameters, in order; see `engine.relax.frontend.joint`. Raises EngineError of kind "operator"
    that names the operator and its module, if Relax lacks one or would change its meaning."""
    progress(0.0, "writing the trace as ATen operators")
    check_in_place(model.flat, model.buffers, model.note)
    joint = model.source.training and model.source.gradient == "pytorch"
    converter = (JointConverter if joint else Converter)(model, {})
    if joint:
        # Autograd's rules are for operators as PyTorch wrote them, whether TVM knows them or not.
        trace = trace_to_fx(model, lambda name: True, whole=True)
        progress(0.2, "taking the gradient with PyTorch's autograd")
        trace = JointTrace(model, trace).run(converter.convert_map.__contains__)
    else:
        trace = trace_to_fx(model, converter.knows)
    note_values(model, trace.values)
    converter.constants = trace.constants
    progress(0.4, "converting operators to Relax")
    tensors = {**model.parameters, **model.buffers}
    inputs = dict(zip(model.input_names, model.inputs, strict=True))
    variables = {
        name: variable(name, tuple(tensor.shape), dtype_name(tensor.dtype))
        for name, tensor in {**inputs, **tensors}.items()
    }
    variables.update({m.name: variable(m.name, m.shape, m.input_dtype) for m in trace.masks})
    variables.update({n: variable(n, *kind) for n, kind in trace.grad_outs.items()})
    builder, env = converter.block_builder, converter.env
    placeholders = iter((*trace.arguments, *(m.name for m in trace.masks), *trace.grad_outs))
    outputs = 0
    with builder.function("main", list(variables.values())):
        with builder.dataflow():
            for node in trace.graph.nodes:
                if node.op == "placeholder":
                    env[node] = variables[next(placeholders)]
                elif node.op != "output":
                    env[node] = converter.convert(node)
                else:
                    results = [env[n] for n in (*node.args[0], *trace.updates.values())]
                    outputs = len(results)
                    results += [env[n] for n in trace.gradients.values()]
                    result = results[0] if len(results) == 1 else relax.Tuple(results)
                    made = builder.emit_output(result, "result")
        builder.emit_func_output(made)
    note_updates(model, tuple(trace.updates))
    main = builder.get()["main"]
    main = main.with_attr("global_symbol", "main")
    mod = relax.transform.Normalize()(tvm.IRModule({"main": main}))
    masks = zip(trace.masks, model.flat.draws(), strict=True)
    return RelaxProgram(
        mod=mod,
        # NumPy has no bfloat16.
        params={n: tvm.runtime.from_dlpack(t) for n, t in model.tvm_tensors().items()},
        inputs=model.input_names,
        outputs=outputs,
        updates=tuple(trace.updates),
        no_gradient=refused_gradient(model),
        buffers=tuple(model.buffers),
        masks=tuple(replace(mask, order=drawn.order) for mask, (_, drawn) in masks),
        grad_outs=tuple(trace.grad_outs),
        gradients=tuple(trace.gradients),
        provenance={n: o.origin for n, o in builder.origins.items()},
    )
