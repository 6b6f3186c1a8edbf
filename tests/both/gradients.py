"""Modules whose gradients are tested in both engines, and the comparison with PyTorch's."""

from functools import cache, partial
from importlib import import_module
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from answers import quiet
from limits import GRADIENT, LIMITS, POINTWISE, rounding
from quick import ENGINE, QUICK
from relascope.engine.building.options import BuildOptions
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.pytorch.model import model_from_module
from relascope.passes.catalogue import default_pipeline, info
from relascope.passes.cuts.cut import cut
from relascope.viz.rows.tables import cut_document
from traces import Fn, Parts


class Many(nn.Module):
    """Many functions in one program, each of an input and parameters of its own."""

    def __init__(self, functions):
        super().__init__()
        self.parts = nn.ModuleList(Fn(function, *sizes) for function, (_, *sizes) in functions)

    def forward(self, *inputs):
        return tuple(part(x) for part, x in zip(self.parts, inputs, strict=True))


def draw(*size):
    return torch.randn(size, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


_NAMED = {
    "kinks": [[-3.0, -1.0, -0.5, 0.0], [0.5, 1.0, 3.0, 6.0]],
    "ties": [[2.0, -1.0, 2.0, 0.5], [1.0, 1.0, 1.0, 1.0]],
    "edges": [0.0, -0.0, 1, -1, 3, -3, 6, 0.5, -2.5, 7, 200, -200],
}
_WORDS = {"torch": torch, "F": F, "chosen": lambda *places: torch.tensor(places)}


def _first(text):
    """A tensor by its name or drawn by its sizes, made positive or times a number."""
    of, _, factor = text.partition(" * ")
    name, sizes = of.removeprefix("positive "), [int(s) for s in of.split() if s.isdigit()]
    made = torch.tensor(_NAMED[name], dtype=torch.float64) if name in _NAMED else draw(*sizes)
    made = made.abs() + 0.5 if of.startswith("positive") else made
    return made * float(factor or 1)


@cache
def operators():
    """The table of gradients.txt: by section and line a function, and what it is given: a tensor x,
    and the sizes of parameters w and v."""
    table = {}
    for line in (Path(__file__).parent / "against_pytorch/gradients.txt").read_text().splitlines():
        if line.startswith("# "):
            section = table.setdefault(line[2:], {})
        elif line:
            expression, _, sizes = line.rpartition(" : ")
            first, *rest = sizes.split(", ")
            names = ", ".join("xwv"[: 1 + len(rest)])
            function = eval(f"lambda {names}: {expression}", _WORDS)
            section[line] = function, (_first(first), *(tuple(map(int, r.split())) for r in rest))
    return table


def small_net():
    torch.manual_seed(0)
    parts = {"fc": nn.Linear(4, 4), "drop": nn.Dropout(0.3)}
    return Parts(lambda m, x: torch.sigmoid(m.drop(torch.softmax(m.fc(x), -1))), **parts)


def _named(place, name):
    return getattr(import_module(f"relascope.{place}"), name)


runtime = import_module(f"relascope.engine.{ENGINE}.building.runtime")
import_model = _named(f"engine.{ENGINE}.frontend.importer", "import_model")
to_graph = _named(f"engine.{ENGINE}.draw.to_graph", "to_graph")
split = _named(f"passes.{ENGINE}.training.split", "split")


def imported(module, *inputs, training=False, dtype="float32", gradient="tvm"):
    """A module's model and program, in the engine of this process."""
    kind = getattr(torch, dtype)
    inputs = tuple(i.to(kind) if i.is_floating_point() else i for i in inputs)
    joint = training or gradient == "pytorch"
    source = ModelSource("module", training=joint, dtype=dtype, gradient=gradient)
    names = tuple(f"x{i}" for i in range(len(inputs)))
    model = model_from_module(module.to(kind).train(training), names, inputs, source, quiet)
    return model, import_model(model, quiet)


trained = partial(imported, training=True)


def passes(program, names):
    """The program after some passes, given as a list of names or a pipeline's text."""
    for name in names.split("|") if isinstance(names, str) else names:
        program = info(ENGINE, name).load()(program)
    return program


def joint(program):
    return passes(program, [s.name for s in default_pipeline(ENGINE, True)])


def split_by(program, strategy="keep_all"):
    graph, exprs = to_graph(program)
    return split(program, graph, exprs, cut(graph, strategy).ids)


def step(model, program, strategy="keep_all", target=QUICK):
    parts = split_by(program, strategy)
    built = runtime.assemble(program, parts, BuildOptions(target, opt_level=1))
    values = values_of(model, program)
    outputs, captures = built.forward(values)
    return outputs, built.backward({**values, **captures})


def run(model, program):
    """The program's outputs on the model's inputs, built without any optimisation."""
    built = runtime.assemble(program, None, BuildOptions(QUICK, opt_level=0))
    return built.forward(values_of(model, program))[0]


def error(model, program):
    """The largest difference to PyTorch's outputs, over each output's scale; types must agree."""
    ours, theirs = run(model, program), model.forward()
    assert [(a.shape, a.dtype) for a in ours] == [(b.shape, b.dtype) for b in theirs]
    pairs = [(a.double(), b.double()) for a, b in zip(ours, theirs, strict=True)]
    return max(float((a - b).abs().max() / max(b.abs().max(), 1e-30)) for a, b in pairs)


def total(model, program, strategy):
    """A cut's total, what its forward hands over, and the masks that the backward takes, in bytes.

    Captures that share a storage are handed over each by itself, so only those with bytes of their
    own count. Results and gradients, too."""
    masks = draw_masks(program.masks, model.source.seed)
    parts = split_by(program, strategy)
    built = runtime.assemble(program, parts, BuildOptions(QUICK, opt_level=1))
    values = values_of(model, program)
    outputs, captures = built.forward(values)
    rows = zip(parts.cut.captures, parts.capture_names, strict=True)
    handed = sum(captures[name].nbytes for row, name in rows if row.bytes)
    taken = sum(masks[m.name].nbytes for m in parts.backward.masks)
    assert parts.cut.mask_bytes == taken
    document = cut_document(cut(to_graph(program)[0], strategy))
    shown = sum(row["bytes"] for row in (*document["captures"], *document["masks"]))
    assert shown == document["bytes"] == parts.cut.bytes
    return (parts.cut.bytes, handed, taken), outputs, built.backward({**values, **captures})


def values_of(model, program):
    inputs = dict(zip(model.input_names, model.inputs, strict=True))
    floating = [g for g in model.grad_outs() if g.is_floating_point()] if program.grad_outs else []
    return {
        **inputs,
        **model.parameters,
        **model.buffers,
        **draw_masks(program.masks, model.source.seed),
        **dict(zip(program.grad_outs, floating, strict=True)),
    }


def compare(model, outputs, gradients, limits=None):
    """Every output and gradient against PyTorch's, in shape, dtype and numbers.

    Limits, of outputs and of gradients, count relative to the scale of PyTorch's tensor. A gradient
    that is zero but for rounding (softmax does not see the bias of its keys) must be as small in
    both."""
    expected = model.forward()
    output_limit, gradient_limit = limits or LIMITS[str(expected[0].dtype).removeprefix("torch.")]
    assert len(outputs) == len(expected)
    for ours, theirs in zip(outputs, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert float(theirs.double().abs().max()) > 0
        worst = (ours.double() - theirs.double()).abs().max()
        assert worst <= output_limit * theirs.double().abs().max()
    wanted = model.gradients()
    assert list(gradients) == [n for n in (*model.input_names, *model.parameters) if n in wanted]
    assert set(gradients) == set(wanted)
    largest = max(float(g.abs().max()) for g in wanted.values())
    assert largest > 0
    noise = rounding(next(iter(wanted.values())).dtype, POINTWISE, largest)
    told = 0
    for name, theirs in wanted.items():
        ours = gradients[name]
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), name
        scale = float(theirs.abs().max())
        worst = float((ours - theirs).abs().max())
        assert worst <= max(gradient_limit * scale, noise), (name, worst, scale)
        told += scale > noise
    assert told, "no gradient is above the noise, so nothing was compared"


def bert_layer(hidden=32, heads=2, dropout=0.1, dtype=torch.float32):
    """A small BertLayer with its inputs (batch 2, 5 tokens)."""
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=2 * hidden,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        attn_implementation="eager",
    )
    layer = BertLayer(config).to(dtype)
    for parameter in layer.parameters():  # biases and norms are not to be zeros and ones
        nn.init.normal_(parameter, std=0.3)
    return layer, (torch.randn(2, 5, hidden, dtype=dtype), torch.zeros(2, 1, 1, 5, dtype=dtype))


def hold_against_itself(session, path, weight):
    """Holds a module from a file, with one parameter and one argument x, against itself; what its
    nodes were held against, whole and split."""
    source, pipeline = source_from_file(path, training=True), default_pipeline(session.ir, True)
    info = session.load(source, progress=silent)
    assert info.against.endswith("operator by operator (its gradients with the imported program)")
    assert info.input_count == 1
    found = session.check(BuildRequest(source, pipeline, QUICK), progress=silent)
    assert [c.name for c in found] == ["output 0", "gradient of x", f"gradient of {weight}"]
    assert all(c.scale > 0 and c.max_rel < GRADIENT for c in found)
    joint = session.graph_after(source, pipeline, len(pipeline) - 1, progress=silent)
    request = BuildRequest(source, pipeline, QUICK)
    seen = []
    for asked in (request, request.split_at(cut(joint, "min_cut").ids)):
        nodes = session.inside(asked, progress=silent)
        seen.append({e.counterpart for e in nodes})
        assert f"gradient of {weight}" in seen[-1]
        assert any(n.startswith("gradient of the program, at ") for n in seen[-1])
        assert max(e.max_rel for e in nodes) < GRADIENT
    return set.intersection(*seen)
