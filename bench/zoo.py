"""Open models drawn at random in both engines, from files as people save them.

    python bench/zoo.py --draw N --seed S

Each model is one of all that timm, torchvision and transformers list, made small by rule
(`bench/oracles/drawn.py`), in one of its forms: live, a trace (`.pt`), or a program (`.pt2`) with a
fixed or a dynamic batch. It is opened, built, run, and compared with the model that was written;
then its joint graph is split at its minimum cut, both halves are built and run, and outputs and all
gradients are compared with PyTorch's. Each has its own process, with limits.

Results are JSON lines in out/zoo, so that a stopped run continues there. Returns 1 if anything is
wrong, crashed or short of its bar."""

import argparse
import copy
import gc
import logging
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

sys.path.append(str(Path(__file__).parent / "oracles"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/both/against_pytorch"))
import drawn
import judged
from judged import ROOT, Row, Tensors
from relascope.core.errors import EngineError
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource, source_from_file, with_tensors
from relascope.engine.pytorch.model import Model, flat_tensors, load_model, model_from_module
from relascope.engine.registry import ENGINES

PHASES = ("forward", "gradient")
Bars = dict[tuple[str, str], int]
_BARS: Bars = {("relax", "forward"): 95, ("relay", "forward"): 92}
_BARS |= {("relax", "gradient"): 88, ("relay", "gradient"): 80}
_SLOW = 3  # per cent of what is drawn
_TOLERANCE = 1e-5  # of a tensor's scale; ten times that for gradients
_SECONDS, _PATIENCE, _GIB = 120, 5, 10
_PAGE = ROOT / "docs/zoo.md"
_OPERATOR = re.compile(r"\b(?:aten|prim|prims|quantized)::\w+(?:\.\w+)?|\b(?:nn|image|vision)\.\w+")


class _Positional(torch.nn.Module):
    """A model with inputs by position, which returns the tensors of its output in order."""

    def __init__(self, whole: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.whole, self.names = whole, names

    def forward(self, *given: torch.Tensor) -> Tensors:
        made = self.whole(**dict(zip(self.names, given, strict=True)))
        return tuple(t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor))


def look(backend: Any, target: str, name: str, form: str, folder: Path) -> Iterator[Row]:
    """Try a model: before each step a row that names it, after each phase one with a verdict."""
    base = {"model": name, "file": form}
    began = time.process_time()
    step, phase = "write", PHASES[0]

    def row(**more: Any) -> Row:
        seconds = round(time.process_time() - began, 1)
        return {**base, "phase": phase, "step": step, **more, "seconds": seconds}

    def held(ours: Tensors, theirs: Tensors, judge: Any, tolerance: float, moved: Any) -> Row:
        found = judged.differences(ours, theirs, judge, tolerance, names, moved=moved)
        return row(verdict="wrong" if found else "right", message=found)

    yield row()
    try:
        whole, given = drawn.make(name)
        module, inputs = _Positional(whole, tuple(given)).eval(), tuple(given.values())
        path = folder / f"{name.replace('/', '-')}{form.partition(' ')[0]}"
        _write(module, inputs, path, form)
        if form.endswith("dynamic"):  # opened with another batch than it was exported with
            inputs = tuple(torch.cat([t, t[:1]]) for t in inputs)
        with torch.no_grad():
            theirs = flat_tensors(module(*inputs))
    except Exception as error:
        said = f"{type(error).__name__}: {judged.short(str(error))}"
        yield row(verdict="unwritten", message=said)
        return
    try:
        step = "open"
        yield row()
        try:
            opened, live = _opened(backend, target, module, path, inputs, True)
        except EngineError:  # then its forward alone
            opened, live = _opened(backend, target, module, path, inputs, False)
        if judged.differences(opened.forward(), theirs, lambda: theirs, _TOLERANCE):
            yield row(verdict="unwritten", message="PyTorch's own file computes something else.")
            return

        def exact() -> Tensors:
            with torch.no_grad():
                return flat_tensors(copy.deepcopy(module).double()(*judged.double(inputs)))

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
            doubled = copy.deepcopy(module).double()
            of = dict(doubled.named_parameters())
            of |= {n.removeprefix("whole."): p for n, p in of.items()}
            given = [t.requires_grad_(t.is_floating_point()) for t in judged.double(inputs)]
            of |= dict(zip(opened.input_names, given, strict=True))
            wanted = [of[n].requires_grad_(True) for n in expected]  # a frozen parameter's, too
            results = [o for o in flat_tensors(doubled(*given)) if o.requires_grad]
            seeds = [g.double() for g in opened.grad_outs()]
            found = torch.autograd.grad(
                results, wanted, seeds, allow_unused=True, materialize_grads=True
            )
            return (*exact(), *found)

        names += [f"gradient of {n}" for n in expected]
        all_theirs = (*theirs, *expected.values())
        yield held(ours, all_theirs, exact_too, 10 * _TOLERANCE, partial(_moved, opened))
    except Exception as error:
        verdict = judged.failed(error)
        if verdict.get("kind") == "file":  # an operator that no file may name
            verdict["verdict"] = "refused"
        verdict["verdict"] = {"eager": "unwritten"}.get(step, verdict["verdict"])
        yield row(**verdict)


def _moved(opened: Model) -> Iterator[Tensors]:
    """Outputs and gradients with inputs and weights off by some roundings of float32."""
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


def _write(module: _Positional, inputs: Tensors, path: Path, form: str) -> None:
    if form == ".pt":
        torch.jit.trace(module, inputs, check_trace=False, strict=False).save(path)
    elif form.startswith(".pt2"):  # as people export it: by keyword, outputs nested
        given = dict(zip(module.names, inputs, strict=True))
        sizes = {n: {0: torch.export.Dim.DYNAMIC} for n in given} if "dynamic" in form else None
        torch.export.save(torch.export.export(module.whole, (), given, dynamic_shapes=sizes), path)
        torch.export.load(path)  # which fails of some that it has written


def _opened(
    backend: Any, target: str, module: _Positional, path: Path, inputs: Tensors, training: bool
) -> tuple[Model, LiveProgram]:
    """A file as the app opens it with saved inputs, or the module itself; and its program."""
    if path.suffix:
        saved = path.with_suffix(".inputs.pt")
        torch.save(list(inputs), saved)
        source = with_tensors(source_from_file(path, training=training), [saved])
        model = load_model(source, silent)
    else:
        source = ModelSource(path.name, training=training)
        model = model_from_module(module, module.names, inputs, source, silent)
    return model, LiveProgram(backend, model, ("min_cut", None), target)


def _work(ir: str, target: str, name: str, form: str, folder: Path, pipe: Connection) -> None:
    """In a child: look at a model, and send every row."""
    resource.setrlimit(resource.RLIMIT_DATA, (_GIB << 30, _GIB << 30))
    for row in look(load_engine(ir), target, name, form, folder):
        pipe.send(row)
        until = int(time.process_time()) + _SECONDS  # by the processor: others may keep it busy
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
    pipe.close()


def run(ir: str, tasks: Iterable[tuple[str, str]], path: Path) -> None:
    """Look at models in one form each, and add a line for each verdict."""
    load_engine(ir)
    torch.set_num_threads(1)
    gc.set_threshold(50_000, 20, 20)  # as the engine's own process does
    gc.freeze()
    target = judged.target_of(ir)
    folder = tempfile.TemporaryDirectory(prefix="relascope-zoo-")
    first = _Positional(torch.nn.Linear(2, 2), ("input",))
    _write(first, (torch.ones(1, 2),), Path(folder.name) / "first.pt2", ".pt2")  # for its imports
    for name, form in tasks:
        last: Row = {"file": form}
        work = partial(_work, ir, target, name, form, Path(folder.name))
        for row in judged.child(work, _PATIENCE * _SECONDS):
            if "died" in row:
                slow = f"{-signal.SIGXCPU}" in row["died"] or "took longer" in row["died"]
                why = f"took longer than {_SECONDS} s" if slow else row["died"]
                row = {**last, "verdict": "slow" if slow else "crash", "message": why}
            last = row
            if "verdict" in row:
                judged.keep(path, row)
                said = (row[k] for k in ("model", "file", "phase", "verdict", "seconds"))
                print(ir, *said, row["step"], row["message"], row.get("where", ""), flush=True)
        judged.keep(path, {"model": name, "verdict": "end"})


def _tasks(path: Path, seed: int, wanted: int) -> Iterator[tuple[str, str]]:
    """Draws, until enough models were written; those in the file of rows are not repeated."""
    done = {r["model"] for r in judged.tried(path) if r["verdict"] == "end"}
    for name, form in drawn.draw(seed):
        rows = judged.tried(path)
        vain = {r["model"] for r in rows if r["verdict"] == "unwritten"}
        if len({r["model"] for r in rows if r["verdict"] == "end"} - vain) >= wanted:
            return
        if name not in done:
            yield name, form


def verdicts(rows: list[Row], phase: str) -> dict[str, Row]:
    """By model, the row of its verdict; the forward's if it came no further."""
    return {r["model"]: r for r in rows if r["phase"] in (PHASES[0], phase)}


def shares(rows: list[Row]) -> dict[str, tuple[int, int]]:
    """By phase, how many models are right, out of how many that PyTorch can write."""
    counts = {}
    for phase in PHASES:
        found = [r["verdict"] for r in verdicts(rows, phase).values()]
        counts[phase] = found.count("right"), len(found) - found.count("unwritten")
    return counts


def blockers(rows: list[Row], phase: str) -> dict[str, list[str]]:
    """Models by the reason of their refusal: each operator named, else the sentence."""
    found: dict[str, list[str]] = {}
    for model, row in verdicts(rows, phase).items():
        if row["verdict"] in ("refused", "crash", "wrong", "slow"):
            text = row["message"]
            for key in dict.fromkeys(_OPERATOR.findall(text)) or [judged.short(text)]:
                found.setdefault(key, []).append(model)
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def missed(ir: str, rows: list[Row]) -> list[str]:
    """The bars that are not met, as sentences."""
    said = []
    for phase, (right, of) in shares(rows).items():
        if 100 * right < _BARS[ir, phase] * of:
            said.append(f"{ir}, {phase}: {right} of {of}, under {_BARS[ir, phase]} %")
    slow = [r["model"] for r in rows if r["verdict"] == "slow"]
    if 100 * len(slow) > _SLOW * len(verdicts(rows, PHASES[0])):
        said.append(f"{ir}: too slow, {', '.join(slow)}")
    for row in rows:
        about = f"{ir}, {row['model']} {row['file']}, {row['phase']}"
        if row["verdict"] in ("wrong", "crash"):
            said.append(f"{about}: {row['verdict']}, {row['message']}")
        if row["verdict"] == "refused" and not row.get("where"):
            said.append(f"{about}: the refusal names no module: {row['message']}")
    return said


def draws_row(ir: str, seed: int, rows: list[Row]) -> str:
    """An engine's results for a draw, as a row of the table of draws."""
    cells = [f"{right} of {of}" for right, of in shares(rows).values()]
    worst = [verdicts(rows, phase) for phase in PHASES]
    for verdict in ("refused", "wrong", "crash", "slow", "unwritten"):
        models = {m for found in worst for m, r in found.items() if r["verdict"] == verdict}
        cells.append(str(len(models)))
    return f"| {seed} | {ir.title()} | " + " | ".join(cells) + " |\n"


def summary(ir: str, rows: list[Row]) -> int:
    """Print the results; 1 if a bar is missed."""
    for phase, (right, of) in shares(rows).items():
        print(f"{ir}, {phase}: {right} of {of} right ({100 * right / max(of, 1):.1f} %)")
        for key, models in blockers(rows, phase).items():
            print(f"  {len(models):3} {key}: {', '.join(models)}")
    said = missed(ir, rows)
    print("\n".join(said) or f"{ir}: every bar is met.")
    return int(bool(said))


def main() -> int:
    """Look at all requested models; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=int, default=100, metavar="N", help="how many models")
    parser.add_argument("--seed", type=int, required=True, metavar="S", help="of the draw")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--page", action="store_true", help="add the shares to docs/zoo.md")
    args = parser.parse_args()
    engines = args.engine or list(ENGINES)
    files = {e: ROOT / f"out/zoo/{e}-{args.seed}.jsonl" for e in engines}
    several = len(engines) > 1  # one TVM a process
    status = judged.apart(engines) if several else _drawn(engines[0], files[engines[0]], args)
    if args.page:
        _write_page({e: _kept(f) for e, f in files.items()}, args.seed)
    return status


def _drawn(ir: str, path: Path, args: argparse.Namespace) -> int:
    warnings.simplefilter("ignore")  # of PyTorch's and transformers' on tracing
    logging.disable(logging.ERROR)  # torch.export logs whole graphs
    rows = judged.tried(path)
    done = {r["model"] for r in rows if r["verdict"] == "end"}
    judged.begin(path, (r for r in rows if r["model"] in done))
    drawn.declare_torchvision()
    run(ir, _tasks(path, args.seed, args.draw), path)
    return summary(ir, _kept(path))


def _write_page(rows: dict[str, list[Row]], seed: int) -> None:
    """Put a row for each engine below the others of the page's table, replacing older ones."""
    new = [draws_row(ir, seed, own) for ir, own in sorted(rows.items())]
    mine = tuple(f"| {seed} | {ir.title()} |" for ir in rows)
    lines = [x for x in _PAGE.read_text("utf-8").splitlines(True) if not x.startswith(mine)]
    last = max(i for i, line in enumerate(lines) if line.startswith("|"))
    lines[last + 1 : last + 1] = new
    _PAGE.write_text("".join(lines), encoding="utf-8")


def _kept(path: Path) -> list[Row]:
    """The rows with a verdict on a model."""
    return [r for r in judged.tried(path) if r["verdict"] != "end"]


if __name__ == "__main__":
    raise SystemExit(main())
