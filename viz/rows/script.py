"""A pipeline as a Python script that runs it step by step (`engine.stepwise`)."""

import re
from collections.abc import Iterator
from dataclasses import fields

from relascope.engine.protocol.source import ModelSource, has_name, input_text
from relascope.passes.catalogue import info
from relascope.passes.pipeline import Pipeline
from relascope.samples import SAMPLES


def step_script(ir: str, source: ModelSource, pipeline: Pipeline, label: str = "") -> str:
    """Python code that loads the model (a file by `label`), runs each pass, and compares."""
    name = source.model if _is_named(source) else label or source.model
    end = "", "sys.exit(0 if run.check() else 1)", ""
    return "\n".join([_head(ir, source, pipeline, name), *_steps(ir, pipeline), *end])


def _is_named(source: ModelSource) -> bool:
    return source.model in SAMPLES or has_name(source.model)


def arguments(source: ModelSource, label: str) -> list[str]:
    """The arguments of a command that name a model, by its file's `label` if it has no name."""
    given = [source.model if _is_named(source) else label]
    for name, value, default in (
        ("--batch", source.batch, None),
        ("--tokens", source.tokens, None),
        ("--seed", source.seed, 0),
        ("--dtype", source.dtype, "float32"),
        ("--module", source.module, ""),
        ("--call", source.call, 1),
    ):
        if value != default:
            given += [name, str(value)]
    if source.weights:
        given.append("--random-weights")
    for name, kind in source.inputs:
        text = "x".join(map(str, kind.shape)) or "scalar"
        given += ["--input", f"{name + '=' if name else ''}{text}:{kind.dtype}"]
    return given


def training_arguments(source: ModelSource) -> list[str]:
    """The arguments that ask for training, and for another gradient than TVM's."""
    gradient = ["--gradient", source.gradient] if source.gradient != "tvm" else []
    return ["--training"] * source.training + gradient


_HEAD = '''"""{name} in {title}, {mode}, pass by pass; written by relascope.

Run it with relascope's folder on PYTHONPATH and the Python of its environment. Each
`run.do` is one pass: remove, move or add lines. Between two of them, `run.mod` is
TVM's own IRModule. The exit status is 0 if everything agrees with PyTorch.
"""

import sys
{more}
from relascope.engine.protocol.source import {kind}
from relascope.engine.stepwise import Stepwise
{own}
run = Stepwise("{ir}", {source})
'''


def _head(ir: str, source: ModelSource, pipeline: Pipeline, name: str) -> str:
    files = sorted({info(ir, s).own_file for s in pipeline} - {""})
    made = _source(source, name)
    kind = "ModelSource, parse_inputs" if source.inputs else "ModelSource"
    named = f"from relascope.passes.catalogue.user import name_files\n\nname_files({files!r})\n"
    return _HEAD.format(
        name=repr(name)[1:-1].replace('"', "'"),
        title=ir.capitalize(),
        mode="training" if source.training else "inference",
        more="from dataclasses import replace\n" if made.startswith("replace(") else "",
        kind=kind if _is_named(source) else "source_from_file",
        own=named if files else "",
        ir=ir,
        source=made,
    )


def _source(source: ModelSource, name: str) -> str:
    """The expression for the model, without arguments at their defaults."""
    given = {
        f.name: (getattr(source, f.name), f.default)
        for f in fields(ModelSource)
        if f.name not in ("model", "inputs", "digest", "values")
    }
    tensors = tuple((path.rpartition("/")[2], digest) for path, digest in source.tensors)
    given["tensors"] = tensors, ()
    kinds = [input_text(*one) for one in source.inputs]
    types = _quoted("\n".join(kinds))
    said = {k: f"{k}={_quoted(v)}" for k, (v, default) in given.items() if v != default}
    if _is_named(source):
        inputs = [f"inputs=parse_inputs({types})"] if kinds else []
        return f"ModelSource({', '.join([_quoted(name), *said.values(), *inputs])})"
    of_file = [said.pop(k) for k in ("seed", "training", "dtype") if k in said]
    made = f"source_from_file({', '.join([_quoted(name), types, *of_file])})"
    return f"replace({', '.join([made, *said.values()])})" if said else made


def _steps(ir: str, pipeline: Pipeline) -> Iterator[str]:
    for step in pipeline:
        about = info(ir, step)
        parameters = {p.name: p for p in about.parameters}
        said = [f"{k}={_quoted(parameters[k].read(v))}" for k, v in step.params]
        call = f"run.do({', '.join([_quoted(step.name), *said])})"
        notes = [about.title if about.title != step.name else "", about.origin.partition(";")[0]]
        if not step.enabled:
            notes.append("switched off")
        elif about.looking:
            notes.append("for inspection")
        yield f"{'' if step.enabled else '# '}{call}  # {'; '.join(filter(None, notes))}"


def _quoted(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r'[^"\\\x00-\t\x0b-\x1f]*', value):
        return '"' + value.replace("\n", "\\n") + '"'
    return repr(value)
