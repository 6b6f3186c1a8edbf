"""Open tiny models of many architectures from files in both engines, and say what stops which.

Run `python bench/zoo.py` from the project's root; `--engine` and `--only` for a part of it. Every
model of `bench/oracles/architectures.py` is written by `torch.jit.save` (`.pt`) and by
`torch.export.save` (`.pt2`), and each file is opened, imported, built and run; its outputs are held
against those of the model that was written. Then its gradient is taken, the joint graph split at
its minimum cut, both halves built and run, and outputs and all gradients held against PyTorch's
autograd.

Each file is looked at in a process of its own, within limits of processor time and memory. What is
found is kept as JSON lines in out/zoo, so that what was stopped goes on there (`--again` starts
anew; what `--only` names is always looked at anew). Prints the first failure of each, and how many
models each operator stops; writes docs/zoo.md with `--page`. Returns 1 where anything is wrong,
crashed or short of its bar.

`--draw N --seed S` takes N models at random in their place, each in one of its forms: see
`bench/oracles/drawn.py`. Its shares are added to bench/results/draws.md with `--page`.
"""

import argparse
import json
import logging
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parent / "oracles"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/both/against_pytorch"))
import drawn
from architectures import GROUPS, Positional, architecture
from judged import ROOT, Row, Tensors, child, differences, failed, short, silent, target_of, tried
from relascope.core.errors import EngineError
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.source import ModelSource, source_from_file, with_tensors
from relascope.engine.pytorch.model import Model, flat_tensors, load_model, model_from_module

ENGINES = ("relax", "relay")
FORMATS = (".pt", ".pt2")
PHASES = ("forward", "gradient")
Bars = dict[tuple[str, str], int]
_BARS: Bars = {("relax", "forward"): 95, ("relay", "forward"): 90}
_BARS |= {("relax", "gradient"): 85, ("relay", "gradient"): 70}
_DRAWN_BARS: Bars = {("relax", "forward"): 95, ("relay", "forward"): 92}
_DRAWN_BARS |= {("relax", "gradient"): 88, ("relay", "gradient"): 80}
_SLOW = 3  # per cent of what is drawn
_TOLERANCE = 1e-5  # of a tensor's scale; ten times that for gradients
_SECONDS, _SECONDS_DRAWN, _PATIENCE, _GIB = 300, 120, 5, 6
_OPERATOR = re.compile(r"\b(?:aten|prim|prims|quantized)::\w+(?:\.\w+)?|\b(?:nn|image|vision)\.\w+")


class _Seen:
    """A file's program with what it was held against, to know another file's for the same."""

    def __init__(self, opened: Model, live: LiveProgram) -> None:
        self.opened, self.program = opened, live.program
        self.verdicts: list[Row] = []

    def same(self, opened: Model, live: LiveProgram) -> bool:
        """Whether another file became the same program, of the same tensors."""
        holder = "tvm.ir" if "tvm.relay" in sys.modules else "tvm_ffi"
        equal = import_module(holder).structural_equal
        mine, theirs = ({**m.parameters, **m.buffers} for m in (self.opened, opened))
        return (
            list(mine) == list(theirs)
            and all(torch.equal(t, theirs[n]) for n, t in mine.items())
            and self.opened.differentiable == opened.differentiable
            and bool(equal(self.program.mod, live.program.mod))
        )


def look(
    backend: Any, target: str, name: str, ending: str, folder: Path, seen: list[_Seen]
) -> Iterator[Row]:
    """Try one file: before each step a row that says which, after each phase one with a verdict.

    Args:
        seen: the model's other files; this one is added.
    """
    base = {"model": name, "file": ending}
    began = time.process_time()
    step, phase = "write", PHASES[0]

    def row(**more: Any) -> Row:
        seconds = round(time.process_time() - began, 1)
        return {**base, "phase": phase, "step": step, **more, "seconds": seconds}

    def held(ours: Tensors, theirs: Tensors, judge: Any, tolerance: float, moved: Any) -> Row:
        found = differences(ours, theirs, judge, tolerance, names, moved=moved)
        seen[-1].verdicts.append({"verdict": "wrong" if found else "right", "message": found})
        return row(**seen[-1].verdicts[-1])

    yield row()
    try:
        module, inputs = _model(name)
        path = folder / f"{name.replace('/', '-')}{ending.partition(' ')[0]}"
        _write(module, inputs, path, ending)
        if ending.endswith("dynamic"):  # opened with another batch than it was exported with
            inputs = tuple(torch.cat([t, t[:1]]) for t in inputs)
        with torch.no_grad():
            theirs = flat_tensors(module(*inputs))
    except Exception as error:
        yield row(verdict="unwritten", message=f"{type(error).__name__}: {short(str(error))}")
        return
    try:
        step = "open"
        yield row()
        try:
            opened, live = _opened(backend, target, module, path, inputs, True)
        except EngineError:  # then its forward alone
            opened, live = _opened(backend, target, module, path, inputs, False)
        if differences(opened.forward(), theirs, lambda: theirs, _TOLERANCE):
            yield row(verdict="unwritten", message="PyTorch's own file computes something else.")
            return
        before = next((s for s in seen if s.same(opened, live)), None)
        if before is not None and len(before.verdicts) == len(PHASES):
            step = "same"
            yield row(**before.verdicts[0])
            phase = PHASES[1]
            yield row(**before.verdicts[1])
            return
        seen.append(_Seen(opened, live))

        def exact() -> Tensors:
            with torch.no_grad():
                return flat_tensors(module.double()(*_double(inputs)))

        step = "run"
        yield row()
        values = dict(zip(opened.input_names, inputs, strict=True))
        values.update({**opened.parameters, **opened.buffers})
        names = [f"output {i}" for i in range(len(theirs))]
        yield held(live.forward(values)[: len(theirs)], theirs, exact, _TOLERANCE, tuple)

        phase, step = PHASES[1], "gradient"
        yield row()
        if not opened.differentiable:
            _opened(backend, target, module, path, inputs, True)
        live.joint()
        step = "eager"
        expected = opened.gradients()
        step = "split"
        yield row()
        halves = live.step(list(expected))
        outputs, captures = halves.forward(values)
        values.update(zip(halves.grad_outs, opened.grad_outs(), strict=True))
        gradients = halves.backward({**values, **captures})
        ours = (*outputs[: len(theirs)], *(gradients[n] for n in expected))

        def exact_too() -> Tensors:
            of = dict(module.double().named_parameters())
            of |= {n.removeprefix("whole."): p for n, p in of.items()}
            given = [t.requires_grad_(t.is_floating_point()) for t in _double(inputs)]
            of |= dict(zip(opened.input_names, given, strict=True))
            for name in expected:
                of[name].requires_grad_(True)  # a frozen parameter's is asked for, too
            results = [o for o in flat_tensors(module(*given)) if o.requires_grad]
            seeds = [g.double() for g in opened.grad_outs()]
            found = torch.autograd.grad(
                results, [of[n] for n in expected], seeds, allow_unused=True, materialize_grads=True
            )
            return (*exact(), *found)

        names += [f"gradient of {n}" for n in expected]
        yield held(
            ours, (*theirs, *expected.values()), exact_too, 10 * _TOLERANCE, partial(_moved, opened)
        )
    except Exception as error:
        verdict = failed(error)
        if verdict.get("kind") == "file":  # an operator that no file may name
            verdict["verdict"] = "refused"
        verdict["verdict"] = {"eager": "unwritten"}.get(step, verdict["verdict"])
        if step not in ("open", "write") and seen:
            seen[-1].verdicts.append(verdict)
        yield row(**verdict)


def _moved(opened: Model) -> Iterator[Tensors]:
    """Its outputs and gradients, with inputs and weights some roundings of float32 off."""
    tensors: Tensors = (*opened.parameters.values(), *opened.inputs)
    floating = [t for t in tensors if t.is_floating_point()]
    before = [t.clone() for t in floating]
    for seed in range(8):
        random = torch.Generator().manual_seed(seed)
        for t, was in zip(floating, before, strict=True):
            t.data.copy_(was * (1 + 2**-21 * torch.randn(t.shape, generator=random)))
        yield (*opened.forward(), *opened.gradients().values())
    for t, was in zip(floating, before, strict=True):
        t.data.copy_(was)


def _model(name: str) -> tuple[torch.nn.Module, Tensors]:
    """A model of the table, or one that was drawn, with inputs by position."""
    if "/" not in name:
        return architecture(name)
    whole, inputs = drawn.make(name)
    return Positional(whole, tuple(inputs)).eval(), tuple(inputs.values())


def _write(module: torch.nn.Module, inputs: Tensors, path: Path, form: str) -> None:
    if form == ".pt":
        torch.jit.trace(module, inputs, check_trace=False, strict=False).save(path)
    elif form.startswith(".pt2"):
        by_name: dict[str, torch.Tensor] = {}
        sizes = None
        if isinstance(module, Positional):  # as people export it: by keyword, outputs nested
            by_name, inputs, module = dict(zip(module.names, inputs, strict=True)), (), module.whole
        if form.endswith("dynamic"):
            sizes = {n: {0: torch.export.Dim.DYNAMIC} for n in by_name}
        program = torch.export.export(module, inputs, by_name, dynamic_shapes=sizes)
        torch.export.save(program, path)
        torch.export.load(path)  # which fails of some that it has written


def _source(path: Path, inputs: Tensors, training: bool) -> ModelSource:
    saved = path.with_suffix(".inputs.pt")
    torch.save(list(inputs), saved)
    return with_tensors(source_from_file(path, training=training), [saved])


def _opened(
    backend: Any, target: str, module: torch.nn.Module, path: Path, inputs: Tensors, training: bool
) -> tuple[Model, LiveProgram]:
    """A file as the app opens it with saved inputs, or the module itself; and its program."""
    if path.suffix:
        model = load_model(_source(path, inputs, training), silent)
    else:
        names = module.names if isinstance(module, Positional) else ()
        source = ModelSource(path.name, training=training)
        model = model_from_module(module, tuple(names), inputs, source, silent)
    return model, LiveProgram(backend, model, ("min_cut", None), target)


def _double(inputs: Tensors) -> Tensors:
    return tuple(t.double() if t.is_floating_point() else t for t in inputs)


def _work(
    ir: str, target: str, name: str, endings: list[str], folder: Path, most: int, pipe: Connection
) -> None:
    """In a child: look at files of a model, and send every row."""
    resource.setrlimit(resource.RLIMIT_DATA, (_GIB << 30, _GIB << 30))
    seen: list[_Seen] = []
    for ending in endings:
        for row in look(load_engine(ir), target, name, ending, folder, seen):
            pipe.send(row)
            until = int(time.process_time()) + most  # by the processor: others may keep it busy
            resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
    pipe.close()


def run(ir: str, tasks: Iterable[tuple[str, list[str]]], path: Path, seconds: int) -> None:
    """Look at models' files, and add a line for each verdict."""
    load_engine(ir)
    torch.set_num_threads(1)
    target = target_of(ir)
    folder = tempfile.TemporaryDirectory(prefix="relascope-zoo-")
    for name in ("bert", "vit", "llama", "unet"):  # what they import, each child has then
        module, inputs = architecture(name)
        _write(module, inputs, Path(folder.name) / f"{name}.pt2", ".pt2")
    for name, rest in tasks:
        while rest:
            last: Row = {"file": rest[0]}
            work = partial(_work, ir, target, name, rest, Path(folder.name), seconds)
            for row in child(work, _PATIENCE * seconds):
                if "died" in row:
                    slow = f"{-signal.SIGXCPU}" in row["died"] or "took longer" in row["died"]
                    why = f"took longer than {seconds} s" if slow else row["died"]
                    row = {**last, "verdict": "slow" if slow else "crash", "message": why}
                last = row
                if "verdict" in row:
                    _keep(path, row)
                    said = (row[k] for k in ("model", "file", "phase", "verdict", "seconds"))
                    print(ir, *said, row["step"], row["message"], row.get("where", ""), flush=True)
            rest = rest[rest.index(last["file"]) + 1 :]
        _keep(path, {"model": name, "verdict": "end"})


def _drawn_tasks(path: Path, seed: int, wanted: int) -> Iterator[tuple[str, list[str]]]:
    """What is drawn, until so many were written; what the file of rows has is not done again."""
    done = {r["model"] for r in tried(path) if r["verdict"] == "end"}
    for name, form in drawn.draw(seed):
        rows = tried(path)
        vain = {r["model"] for r in rows if r["verdict"] == "unwritten"}
        if len({r["model"] for r in rows if r["verdict"] == "end"} - vain) >= wanted:
            return
        if name not in done:
            yield name, [form]


def _keep(path: Path, row: Row) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def verdicts(rows: list[Row], phase: str) -> dict[str, str]:
    """By model, of both files together: the worst of what was found; what PyTorch cannot write
    counts where it can write neither. No gradient without a forward.
    """
    order = ("crash", "wrong", "slow", "not run", "refused", "right", "unwritten")
    found: dict[str, str] = {}
    for model in dict.fromkeys(r["model"] for r in rows):
        cells = [_cell(rows, model, f, phase) for f in _forms(rows, model)]
        found[model] = min(cells, key=order.index)
    return found


def _forms(rows: list[Row], model: str) -> list[str]:
    if "/" in model:
        return list(dict.fromkeys(r["file"] for r in rows if r["model"] == model and "file" in r))
    return list(FORMATS)


def _row(rows: list[Row], model: str, ending: str, phase: str) -> Row:
    """The verdict's row; the forward's where that was as far as it came."""
    own = {r["phase"]: r for r in rows if r["model"] == model and r.get("file") == ending}
    return own.get(phase) or own.get(PHASES[0]) or {"verdict": "not run", "message": ""}


def _cell(rows: list[Row], model: str, ending: str, phase: str) -> str:
    return str(_row(rows, model, ending, phase)["verdict"])


def shares(rows: list[Row]) -> dict[str, tuple[int, int]]:
    """By phase, how many models are right, and of how many that PyTorch can write."""
    counts = {}
    for phase in PHASES:
        found = [v for v in verdicts(rows, phase).values() if v not in ("unwritten", "not run")]
        counts[phase] = found.count("right"), len(found)
    return counts


def blockers(rows: list[Row], phase: str) -> dict[str, list[str]]:
    """Models by what they are refused for: each operator that is named, else the sentence."""
    found: dict[str, list[str]] = {}
    for model in dict.fromkeys(r["model"] for r in rows):
        for ending in _forms(rows, model):
            row = _row(rows, model, ending, phase)
            if row["verdict"] in ("refused", "crash", "wrong", "slow"):
                text = row["message"]
                for key in dict.fromkeys(_OPERATOR.findall(text)) or [short(text)]:
                    if model not in found.setdefault(key, []):
                        found[key].append(model)
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def missed(ir: str, rows: list[Row], bars: Bars) -> list[str]:
    """Bars that are not met, in words."""
    said = []
    for phase, (right, of) in shares(rows).items():
        if 100 * right < bars[ir, phase] * of:
            said.append(f"{ir}, {phase}: {right} of {of}, under {bars[ir, phase]} %")
    slow = [r["model"] for r in rows if r["verdict"] == "slow"]
    if 100 * len(slow) > _SLOW * len(verdicts(rows, PHASES[0])):
        said.append(f"{ir}: too slow, {', '.join(slow)}")
    for row in rows:
        about = f"{ir}, {row['model']}{row.get('file')}, {row.get('phase')}"
        if row["verdict"] in ("wrong", "crash"):
            said.append(f"{about}: {row['verdict']}, {row['message']}")
        if row["verdict"] == "refused" and not row.get("where"):
            said.append(f"{about}: the refusal names no module: {row['message']}")
    return said


def page(rows: dict[str, list[Row]]) -> str:
    """What each engine makes of each model's files, as Markdown.

    Args:
        rows: by engine.
    """
    counts = {ir: shares(own) for ir, own in rows.items()}
    lines = [_PAGE_HEAD, "| | " + " | ".join(f"{ir.title()}" for ir in rows) + " |"]
    lines.append("|---|" + "---:|" * len(rows))
    for phase, words in zip(PHASES, ("forward right", "gradient and split right"), strict=True):
        cells = [f"{right} of {of}" for right, of in (counts[ir][phase] for ir in rows)]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    for ir, own in rows.items():
        lines += ["", f"## What stops {ir.title()}", "", "| | forward of | gradient of |"]
        lines.append("|---|---|---|")
        both = [blockers(own, p) for p in PHASES]
        for key in dict.fromkeys(k for found in both[::-1] for k in found):
            cells = [", ".join(found.get(key, [])) for found in both]
            name = f"`{key}`" if _OPERATOR.fullmatch(key) else short(key)
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    columns = [(ir, f) for ir in rows for f in FORMATS]
    for group, members in GROUPS.items():
        lines += ["", f"## {group}", ""]
        lines.append("| | " + " | ".join(f"{ir.title()}, `{f}`" for ir, f in columns) + " | why |")
        lines.append("|---|" + "---|" * (len(columns) + 1))
        for model in members:
            cells, why = [], ""
            for ir, ending in columns:
                forward, gradient = (_row(rows[ir], model, ending, p) for p in PHASES)
                bad = gradient["verdict"] in ("wrong", "crash")
                partly = "forward" if forward["verdict"] == "right" and not bad else None
                word = "right" if gradient["verdict"] == "right" else partly
                cells.append((word or gradient["verdict"]).replace("unwritten", ""))
                if word != "right" and not why and gradient["message"]:
                    why = f"{ir.title()}: {short(gradient['message'])}"
            lines.append(f"| {model} | " + " | ".join(cells) + f" | {why} |")
    return "\n".join(lines) + "\n"


_PAGE_HEAD = f"""# Zoo

What each engine makes of {sum(map(len, GROUPS.values()))} tiny models of many architectures, with
random weights in eval mode, each written to a file by `torch.jit.save` (`.pt`) and by
`torch.export.save` (`.pt2`), and opened from it. `python bench/zoo.py --page` writes this page.

*right*: opened, imported, built and run, with the outputs of the model that was written; and the
gradient taken, split at the minimum cut, both halves built and run, with PyTorch's outputs and
gradients of all floating inputs and parameters. Where both files import to the same program, it is
built once. *forward*: as far as the outputs; the gradient is refused. *refused*: an error in words
names what cannot be imported, and where. *wrong* and *crash* are faults. An empty field: PyTorch
itself cannot write the file. A model counts as right where all its files are; what has *not run*
counts nowhere.

What becomes of models that nobody chose stands in
[bench/results/draws.md](../bench/results/draws.md).
"""


_DRAWS_HEAD = """# Models drawn at random

`python bench/zoo.py --draw N --seed S --page` adds a row an engine: models of timm, torchvision and
transformers, made small by rule, each as a live module, a trace, or a program (with a fixed or a
dynamic batch). *vain*: drawn, and PyTorch itself could not make, run or write it.

| seed | engine | forward right | gradient and split right | refused | wrong | crash | slow | vain |
|---|---|---|---|---|---|---|---|---|
"""


def draws_row(ir: str, seed: int, rows: list[Row]) -> str:
    """What one engine makes of a draw, as a row of the table of draws."""
    cells = [f"{right} of {of}" for right, of in shares(rows).values()]
    worst = verdicts(rows, PHASES[0]), verdicts(rows, PHASES[1])
    for verdict in ("refused", "wrong", "crash", "slow", "unwritten"):
        cells.append(str(len({m for found in worst for m, v in found.items() if v == verdict})))
    return f"| {seed} | {ir.title()} | " + " | ".join(cells) + " |\n"


def summary(ir: str, rows: list[Row], bars: Bars) -> int:
    """Print what was found; 1 where a bar is missed."""
    for phase, (right, of) in shares(rows).items():
        print(f"{ir}, {phase}: {right} of {of} right ({100 * right / max(of, 1):.1f} %)")
        for key, models in blockers(rows, phase).items():
            print(f"  {len(models):3} {key}: {', '.join(models)}")
    said = missed(ir, rows, bars)
    print("\n".join(said) or f"{ir}: every bar is met.")
    return int(bool(said))


def main() -> int:
    """Look at all that is asked for; 1 where a bar is missed."""
    every = [n for names in GROUPS.values() for n in names]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--only", nargs="+", default=[], metavar="MODEL", choices=every)
    parser.add_argument("--again", action="store_true", help="forget what was found before")
    parser.add_argument("--failed", action="store_true", help="again what was not right before")
    parser.add_argument("--page", action="store_true", help="write docs/zoo.md")
    parser.add_argument("--draw", type=int, metavar="N", help="models at random, in place of these")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of what is drawn")
    parser.add_argument("--folder", type=Path, default=ROOT / "out/zoo")
    args = parser.parse_args()
    engines = args.engine or list(ENGINES)
    files = {e: args.folder / f"{e}{f'-{args.seed}' if args.draw else ''}.jsonl" for e in engines}
    if len(engines) > 1:  # one TVM a process
        own = [a for a in sys.argv[1:] if a != "--page"]
        runs = [subprocess.Popen([sys.executable, __file__, *own, "--engine", e]) for e in engines]
        status = max(r.wait() for r in runs)
        if args.page:
            _write_page({e: _kept(f) for e, f in files.items()}, args.seed if args.draw else None)
        return status
    warnings.simplefilter("ignore")  # of PyTorch's and transformers' on tracing
    logging.disable(logging.ERROR)  # torch.export logs whole graphs
    ir = engines[0]
    path = files[ir]
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [] if args.again else tried(path)
    done = {r["model"] for r in rows if r["verdict"] == "end"} - set(args.only)
    if args.failed:
        done -= {r["model"] for r in rows if r["verdict"] not in ("right", "end", "unwritten")}
    rows = [r for r in rows if r["model"] in done]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    if args.draw:
        drawn.declare_torchvision()
        run(ir, _drawn_tasks(path, args.seed, args.draw), path, _SECONDS_DRAWN)
    else:
        names = [n for n in args.only or every if n not in done]
        run(ir, ((n, list(FORMATS)) for n in names), path, _SECONDS)
    return summary(ir, _kept(path), _DRAWN_BARS if args.draw else _BARS)


def _write_page(rows: dict[str, list[Row]], seed: int | None) -> None:
    if seed is None:
        (ROOT / "docs/zoo.md").write_text(page(rows), encoding="utf-8")
        return
    path = ROOT / "bench/results/draws.md"
    before = path.read_text(encoding="utf-8") if path.exists() else _DRAWS_HEAD
    kept = [x for x in before.splitlines(True) if not x.startswith(f"| {seed} |")]
    new = [draws_row(ir, seed, own) for ir, own in rows.items()]
    path.write_text("".join(kept + new), encoding="utf-8")


def _kept(path: Path) -> list[Row]:
    """Rows of models that were drawn or are in the table now, each with a verdict."""
    every = {n for names in GROUPS.values() for n in names}
    rows = [r for r in tried(path) if r["verdict"] != "end"]
    return [r for r in rows if r["model"] in every or "/" in r["model"]]


if __name__ == "__main__":
    raise SystemExit(main())
