"""Tab "In your code": the screen as code for a training script and as command lines."""

import shlex

import streamlit as st

from relascope.core.graph import TensorType
from relascope.engine.protocol.results import ModelInfo
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts import cut as cuts
from relascope.samples import SAMPLES
from relascope.viz.panels.shell.cut_choice import choice_of
from relascope.viz.panels.shell.frame import heading
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.rows.script import arguments, step_script, training_arguments


def show(screen: Screen) -> None:
    info: ModelInfo = screen.cache.ask("load", screen.source)
    heading("In a training script")
    st.code(snippet(screen, info), language="python")
    choice = choice_of(screen) if screen.training else None
    if choice and (choice.save or choice.recompute or any(choice.how)):
        only = "Choices by hand, offloading and recomputing per use apply only on"
        st.caption(f"{only} the page and the command line.")
    heading("The pipeline, pass by pass")
    text = step_script(screen.ir, screen.source, screen.pipeline, screen.label)
    st.code(text, language="python", height=320)
    heading("From the command line")
    st.code("\n".join(commands(screen)), language="bash", wrap_lines=True)


def snippet(screen: Screen, info: ModelInfo) -> str:
    """Python code that sends the current model through TVM."""
    source, sample = screen.source, screen.source.model in SAMPLES
    made = ", ".join(tensor(t) for _, t in info.arguments[: info.input_count])
    lines = [] if sample and not source.module else ["import torch", ""]
    lines.append("from relascope import add_tvm_dispatch, remove_tvm_dispatch")
    if sample:
        sizes = {"batch": source.batch, "tokens": source.tokens, "training": source.training}
        options = "".join(f", {k}={v}" for k, v in sizes.items() if v is not None)
        made_by = f'module, inputs = build("{source.model}"{options})'
        lines += ["from relascope.samples import build", "", made_by]
    else:
        lines += ["", f"module = ...  # the nn.Module that {screen.label} was made from"]
        lines.append(f"inputs = {'...' if source.module else f'({made},)'}")
    name, samples = "module", "inputs"
    if source.module:
        name, samples = "part", "like"
        lines += [
            f'part = module.get_submodule("{source.module}")',
            f"like = ({made},)  # the first arguments of its forward()",
        ]
    lines += [
        "",
        "# Calls with the same shapes, dtypes and device go through TVM, all others as before.",
        f"add_tvm_dispatch({name}, {samples}{_options(screen)})",
        "output = module(*inputs)",
        f"remove_tvm_dispatch({name})",
    ]
    return "\n".join(lines)


def _options(screen: Screen) -> str:
    """The arguments for the page's engine and captures, without choices by hand."""
    named = "" if screen.ir == "relay" else f', engine="{screen.ir}"'
    if not screen.training:
        return named
    choice = choice_of(screen)
    if choice.strategy != cuts.DEFAULT:
        named += f', captures="{choice.strategy}"'
    return named + ("" if choice.limit is None else f", budget={choice.limit}")


def tensor(kind: TensorType) -> str:
    """An expression for an example tensor of a type."""
    shape = ", ".join(map(str, kind.shape))
    if kind.dtype.startswith(("float", "bfloat")):
        extra = "" if kind.dtype == "float32" else f", dtype=torch.{kind.dtype}"
        return f"torch.randn({shape}{extra})" if shape else f"torch.randn((){extra})"
    return f"torch.zeros(({shape}{',' if len(kind.shape) == 1 else ''}), dtype=torch.{kind.dtype})"


def commands(screen: Screen) -> list[str]:
    """The command lines that do what the tabs show."""
    source = screen.source
    model, *more = arguments(source, screen.label)
    common = [model, "--engine", screen.ir, *more]
    training = training_arguments(source)
    passes = []
    if screen.pipeline != default_pipeline(screen.ir, source.training, source.gradient):
        passes = ["--passes", str(screen.pipeline)]
    cut = _cut(screen) if source.training else []
    lines = [
        ["graph", *common, *training, "-o", "graph.json"],
        ["step", *common, *training, *passes],
        *([["captures", *common, *training[1:], *passes, *cut]] if source.training else []),
        ["check", *common, *training, *passes],
        ["time", *common, *training, *passes, *cut],
        ["compare", model, *more, *training],
    ]
    return [shlex.join(["relascope", *line, "--json"]) for line in lines]


def _cut(screen: Screen) -> list[str]:
    choice = choice_of(screen)
    cut = ["--strategy", choice.strategy]
    if choice.limit is not None:
        whole = isinstance(choice.limit, int)
        cut += ["--budget", str(choice.limit) if whole else f"{choice.limit:.0%}"]
    for option, ids in (("--save", choice.save), ("--recompute", choice.recompute)):
        for node_id in ids:
            cut += [option, node_id]
    cut += ["--offload"] if choice.offload else []
    return [*cut, "--recompute-per-use"] if choice.per_use else cut
