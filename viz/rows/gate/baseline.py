"""Differences between a baseline and a model's compile now, in sentences.

Baselines are documents of `engine.jobs.baseline.take`. Structure must be equal, sizes within a
percent. Times are compared only on the same machine, by the best, least disturbed, of several runs.
"""

import difflib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.jobs.baseline import VERSION
from relascope.viz.rows.formats import counts_text, flops, size

Document = dict[str, Any]

KINDS = {
    "crash": "a pass fails, or the program cannot be built or run",
    "wrong": "an output or gradient is over its limit in float64",
    "error": "one is over its limit in float32, or ten times as far off as it was",
    "pipeline": "the passes of the default pipeline",
    "operators": "operators that are called, module by module",
    "fusion": "kernels, and which operators are fused",
    "captures": "what each strategy saves for the backward",
    "flops": "floating-point operations",
    "memory": "memory of a run, parameters and constants",
    "compile": "time of a pass, or of the build",
    "speed": "time of a run against PyTorch eager's",
}
"""The kinds of differences, with descriptions."""

PART = 0.01  # how much sizes and FLOPs may grow
_PART = f"{100 * PART:g} %"

FACTOR, LEAST_MS, BUILD_MS = 1.5, 5.0, 50.0
"""A pass is slower if it takes `FACTOR` times as long and `LEAST_MS` more; a build, `BUILD_MS`."""

SPEED = 1.25  # a run is slower if it takes this many times as long, relative to eager

GROWN = 10.0
"""An error has grown if it is this many times the baseline's, and over a tenth of its limit."""

_SHOWN = 6  # sentences of one kind before the rest is counted
_TIMES = ("compile", "speed")


@dataclass(frozen=True)
class BaselineDifference:
    """One sentence of a comparison: `text`, after a kind of `KINDS`."""

    kind: str
    verdict: str  # "worse", "better" or "other"
    text: str
    metric: str = ""  # what was counted or measured, if the kind does not say it
    then: str = ""  # in the baseline
    now: str = ""
    limit: str = "no change"  # that is tolerated

    @property
    def sentence(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Compared:
    """The differences, in the order of `KINDS`; why some were not compared; the kinds skipped."""

    differences: tuple[BaselineDifference, ...]
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def failing(self, kinds: Collection[str] = KINDS) -> tuple[BaselineDifference, ...]:
        """Differences of some kinds that are not improvements."""
        return tuple(d for d in self.differences if d.kind in kinds and d.verdict != "better")

    def to_json(self) -> Document:
        rows = [{**asdict(d), "sentence": d.sentence} for d in self.differences]
        return {"differences": rows, "notes": [*self.notes], "not_held": [*self.skipped]}


def compare(then: Document, now: Document) -> Compared:
    was, made = then["made"], now["made"]
    notes, skipped = [], set()
    if was["tvm"] != made["tvm"]:
        said = f"The baseline was made with TVM {was['tvm']}, but this check with TVM {made['tvm']}"
        notes.append(f"{said}: a difference may be TVM's.")
    if was["target"] != made["target"]:
        skipped |= {"memory", "error", *_TIMES}
        said = f"The baseline is for the target {was['target']}, but this is {made['target']}"
        notes.append(f"{said}: errors, memory and times are not compared.")
    elif (was["machine"], was["threads"]) != (made["machine"], made["threads"]):
        skipped |= set(_TIMES)
        said = f"The baseline was made on another machine ({_machine(was)}; this is "
        notes.append(f"{said}{_machine(made)}): times are not compared.")
    if "wrong" == then["error"]["verdict"] == now["error"]["verdict"]:
        notes.append("The numbers are wrong, as they were when the baseline was made.")
    if "speed" in then and "speed" not in now and "speed" not in skipped:
        notes.append("The baseline has speeds, but none were measured now; add --speed.")
    order = list(KINDS)
    held = [differ for differ in _HELD if differ.__name__[1:] not in skipped]
    found = [d for differ in held for d in differ(then, now) if d.kind not in skipped]
    found.sort(key=lambda d: order.index(d.kind))
    return Compared(tuple(found), tuple(notes), tuple(k for k in order if k in skipped))


def crashed(error: EngineError) -> BaselineDifference:
    """The difference that a model with a baseline can no longer be compiled or run."""
    where = f" ({error.where})" if error.where and error.where not in error.message else ""
    said = error.message.partition("\n")[0].rstrip(".")
    text = f"it can no longer be compiled and run: {said}{where}"
    return BaselineDifference("crash", "worse", text, "", "runs", "fails")


def _machine(made: Document) -> str:
    threads = f", {made['threads']} threads" if made["threads"] else ""
    return f"{made['machine']}{threads}"


def read(text: str, path: str) -> Document:
    """A baseline from its text. Raises EngineError of kind "file" if it is none of this version."""
    try:
        document = json.loads(text)
        version = document["baseline"]
    except (ValueError, KeyError, TypeError) as wrong:
        hint = "`relascope baseline MODEL -o FILE` writes one."
        raise EngineError("file", "This is not a baseline.", path, hint) from wrong
    missing = [n for n in _FIELDS if not isinstance(document.get(n), _FIELDS[n])]
    message = f"This baseline lacks {', '.join(missing)}, or has another form."
    if version != VERSION:
        message = f"This baseline has format {version}, but this relascope reads format {VERSION}."
    if missing or version != VERSION:
        raise EngineError("file", message, path, "Write it again: relascope baseline MODEL.")
    return dict(document)


_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("model", "engine", "pipeline"), str),
    **dict.fromkeys(("options", "made", "operators", "bytes"), dict),
    **dict.fromkeys(("flops", "memory", "error", "compile"), dict),
}


def write(document: Document) -> str:
    """A baseline as JSON for people: short values are on one line."""
    return _json(document, 0) + "\n"


def _json(value: Any, depth: int) -> str:
    short = json.dumps(value, ensure_ascii=False)
    if not (isinstance(value, dict | list) and value) or (depth and len(short) + 2 * depth <= 96):
        return short
    inner = [_json(v, depth + 1) for v in (value.values() if isinstance(value, dict) else value)]
    if isinstance(value, dict):
        inner = [f"{json.dumps(k)}: {text}" for k, text in zip(value, inner, strict=True)]
    space = "\n" + "  " * depth
    return f"{short[0]}{space}  " + f",{space}  ".join(inner) + f"{space}{short[-1]}"


def _error(then: Document, now: Document) -> Iterator[BaselineDifference]:
    was, error = then["error"], now["error"]
    worst, max_rel, limit = error["worst"], float(error["max_rel"]), error["limit"]
    off = f"{worst} is off by {max_rel:.1e} of its scale"
    before = f"{float(was['max_rel']):.1e} of {was['worst']}"
    row = worst, before, f"{max_rel:.1e}", f"{limit:.0e}"
    if error["verdict"] == "wrong" != was["verdict"]:
        said = f"{off} (limit {limit:.0e}), and over the limit in float64, too"
        yield BaselineDifference("wrong", "worse", f"{said}; it was {before}", *row)
    elif error["verdict"] == "rounding" and was["verdict"] == "right":
        said = f"{off}, over the limit {limit:.0e}: rounding, because float64 is within its own"
        yield BaselineDifference("error", "worse", f"{said}; it was {before}", *row)
    elif not max_rel <= GROWN * float(was["max_rel"]) and not max_rel <= limit / 10:
        said = f"{off}, and was by {before} (limit {limit:.0e})"
        yield BaselineDifference("error", "worse", said, *row[:3], f"{GROWN:g} times")


def _pipeline(then: Document, now: Document) -> Iterator[BaselineDifference]:
    was, steps = (d["pipeline"].split("|") for d in (then, now))
    said = []
    for what, a, b, c, d in difflib.SequenceMatcher(None, was, steps, False).get_opcodes():
        old, new = (", ".join(f"`{s}`" for s in part) for part in (was[a:b], steps[c:d]))
        gone = f"{old} {'is' if b - a == 1 else 'are'}"
        come = f"{new} {'is' if d - c == 1 else 'are'}"
        if what == "delete":
            said.append(f"{gone} no longer in it")
        elif what == "insert":
            said.append(f"{come} new, from step {c + 1} on")
        elif [f"-{s}" for s in was[a:b]] == steps[c:d]:
            said.append(f"{gone} switched off")
        elif was[a:b] == [f"-{s}" for s in steps[c:d]]:
            said.append(f"{come} switched on")
        elif what == "replace":
            said.append(f"from step {c + 1} on, it has {new} instead of {old}")
    if said:
        counts = "passes", str(len(was)), str(len(steps))
        yield BaselineDifference("pipeline", "other", "; ".join(said), *counts)


def _operators(then: Document, now: Document) -> Iterator[BaselineDifference]:
    was, calls = then["operators"], now["operators"]
    said = [*_modules(was, calls, "gone"), *_modules(calls, was, "new")]
    left = _paths(was) - _paths(calls), _paths(calls) - _paths(was)
    changed: dict[tuple[str, int], list[str]] = {}
    for scope in dict.fromkeys((*was, *calls)):
        if scope in left[0] | left[1]:
            continue
        a, b = was.get(scope, {}), calls.get(scope, {})
        for operator in dict.fromkeys((*a, *b)):
            if more := b.get(operator, 0) - a.get(operator, 0):
                changed.setdefault((operator, more), []).append(scope)
    for (operator, more), scopes in changed.items():
        count = f"{abs(more)} " if abs(more) > 1 else "one "
        for like in _alike(scopes):
            said.append(f"{count}`{operator}` {'more' if more > 0 else 'fewer'}{_in(like)}")
    if said:
        total = [sum(sum(ops.values()) for ops in d.values()) for d in (was, calls)]
        head = f"{total[1]} instead of {total[0]}; " if total[0] != total[1] else ""
        counts = "calls", *map(str, total)
        yield BaselineDifference("operators", "other", head + _listed(said), *counts)


def _modules(these: Document, others: Document, what: str) -> Iterator[str]:
    """Sentences on the outermost modules that only `these` have, with their operators."""
    only = _paths(these) - _paths(others)
    for path in sorted(only, key=_numbers):
        if path.rpartition(".")[0] in only:
            continue
        inside: Counter[str] = Counter()
        for scope, operators in these.items():
            if scope == path or scope.startswith(f"{path}."):
                inside.update(operators)
        most = dict(inside.most_common(3))
        rest = f" and {len(inside) - len(most)} more kinds" if len(inside) > len(most) else ""
        held = f"{'all of its' if what == 'gone' else 'its'} {sum(inside.values())} operators"
        held = "its one operator" if sum(inside.values()) == 1 else held
        yield f"the module {path} is {what}, with {held} ({counts_text(most)}{rest})"


def _paths(scopes: Iterable[str]) -> set[str]:
    """The paths of scopes, and those of the modules around them."""
    return {".".join(p) for s in scopes if s for p in accumulate([[n] for n in s.split(".")])}


def _fusion(then: Document, now: Document) -> Iterator[BaselineDifference]:
    if None in (then.get("kernels"), now.get("kernels")):
        return
    was, kernels = (Counter(tuple(k) for k in d["kernels"]) for d in (then, now))
    gone, made = list((was - kernels).elements()), list((kernels - was).elements())
    if not gone and not made:
        return
    changes = _regrouped(gone, made)
    count, before = len(now["kernels"]), len(then["kernels"])
    said = [f"{count} kernels instead of {before}"] if count != before else []
    grouped: dict[tuple[str, str], list[str]] = {}
    for words, (operators, scope) in changes:
        grouped.setdefault((operators, words), []).append(scope)
    for (operators, words), scopes in grouped.items():
        said += [f"{operators}{_in(like, 'of')} {words}" for like in _alike(scopes)]
    if not said:  # the same kernels, of other operators
        return
    lost = any(words.startswith(_LOST) for words, _ in changes)
    better = "better" if then["operators"] == now["operators"] else "other"
    verdict = "worse" if lost or count > before else better
    yield BaselineDifference("fusion", verdict, _listed(said), "kernels", str(before), str(count))


Kernel = tuple[str, ...]
_LOST = "is no longer fused with"


def _regrouped(gone: Sequence[Kernel], made: Sequence[Kernel]) -> list[tuple[str, tuple[str, str]]]:
    """Changes of fusion, in words: no longer fused, now fused, and new operators alone."""
    free = [Counter(k) for k in made]
    sources: list[list[Kernel]] = [[] for _ in made]
    lost, gained, new = [], [], []
    for kernel in gone:
        left, pieces = Counter(kernel), list[tuple[int, Kernel]]()
        while True:
            shared = [(sum((left & f).values()), -i) for i, f in enumerate(free)]
            most, place = max(shared, default=(0, 0))
            if not most:
                break
            index = -place
            both = left & free[index]
            left, free[index] = left - both, free[index] - both
            piece = tuple(n for i, n in enumerate(kernel) if kernel[:i].count(n) < both[n])
            pieces.append((index, piece))
            sources[index].append(piece)
        pieces.sort(key=lambda p: kernel.index(p[1][0]))
        for _, piece in pieces[1:]:
            lost.append((f"{_LOST} `{_heaviest(pieces[0][1])}`", _label(piece)))
    for kernel, parts, rest in zip(made, sources, free, strict=True):
        for part in parts[1:]:
            gained.append((f"is now fused with `{_heaviest(parts[0])}`", _label(part)))
        if not parts and rest:
            new.append(("is now a separate kernel", _label(kernel)))
    return [*lost, *gained, *new]


def _heaviest(kernel: Kernel) -> str:
    """The operator that names a kernel: its product, or else its first."""
    operators = [label.partition(" @")[0] for label in kernel]
    words = ("dense", "matmul", "conv", "attention", "einsum")
    return next((o for o in operators if any(w in o for w in words)), operators[0])


def _label(kernel: Kernel) -> tuple[str, str]:
    """A kernel's operators in words, and the module of most of them."""
    parts = [label.partition(" @")[::2] for label in kernel]
    scope = Counter(s for _, s in parts).most_common(1)[0][0]
    operators = ", ".join(f"`{o}`" for o in dict.fromkeys(o for o, _ in parts[:4]))
    more = f" and {len(parts) - 4} more" if len(parts) > 4 else ""
    return operators + more, scope


def _captures(then: Document, now: Document) -> Iterator[BaselineDifference]:
    was, cuts = then.get("captures"), now.get("captures")
    if not was or not cuts:
        return
    grouped: dict[tuple[str, str, str, str], list[str]] = {}
    for name, one in cuts.items():
        old = was.get(name)
        if old is None or (old["bytes"], old["of"]) == (one["bytes"], one["of"]):
            continue
        more = (one["bytes"] or 0) - (old["bytes"] or 0)
        verdict = "worse" if more > 0 else "better" if more < 0 else "other"
        row = _other_captures(old, one), verdict, _held(old), _held(one)
        grouped.setdefault(row, []).append(name)
    for (text, verdict, before, held), strategies in grouped.items():
        names = ", ".join(strategies)
        yield BaselineDifference("captures", verdict, f"{names}: {text}", names, before, held)


def _held(one: Document) -> str:
    return f"{one['count']}, {size(one['bytes'])}"


def _other_captures(old: Document, one: Document) -> str:
    held = f"{one['count']} captures, {size(one['bytes'])}"
    said = [f"{held} instead of {_held(old)}"] if _held(one) != _held(old) else []
    was, saved = (
        Counter({(op, scope): n for scope, ops in cut["of"].items() for op, n in ops.items()})
        for cut in (old, one)
    )
    for words, found in (("now saved", saved - was), ("no longer saved", was - saved)):
        if found:
            labels = [f"`{op}`{_in([scope], 'of')}" for op, scope in found]
            rest = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
            said.append(f"{words}: {', '.join(labels[:3])}{rest}")
    return "; ".join(said)


def _flops(then: Document, now: Document) -> Iterator[BaselineDifference]:
    was, counts = then["flops"], now["flops"]
    verdict = _grown(was["total"], counts["total"])
    if not verdict:
        return
    by, old = counts["by operator"], was["by operator"]
    moved = {o: by.get(o, 0) - old.get(o, 0) for o in dict.fromkeys((*by, *old))}
    most = sorted(filter(moved.__getitem__, moved), key=lambda o: -abs(moved[o]))[:2]
    told = ", ".join(f"`{o}` {flops(by.get(o, 0))} instead of {flops(old.get(o, 0))}" for o in most)
    before, count = flops(was["total"]), flops(counts["total"])
    said = f"{count} instead of {before} ({_by(was['total'], counts['total'])}): {told}"
    yield BaselineDifference("flops", verdict, said, "", before, count, _PART)


def _memory(then: Document, now: Document) -> Iterator[BaselineDifference]:
    for part, name, words in (
        ("memory", "built", "what is built takes"),
        ("bytes", "parameters", "the parameters take"),
        ("bytes", "constants", "the constants take"),
    ):
        was, taken = then[part].get(name), now[part].get(name)
        if None not in (was, taken) and (verdict := _grown(was, taken)):
            said = f"{words} {size(taken)} instead of {size(was)} ({_by(was, taken)})"
            yield BaselineDifference("memory", verdict, said, name, size(was), size(taken), _PART)


def _grown(was: float, now: float) -> str:
    """ "worse", "better", or "" if a figure changed by at most `PART`."""
    if abs(now - was) <= PART * max(was, 1):
        return ""
    return "worse" if now > was else "better"


def _by(was: float, now: float) -> str:
    if not was:
        return "from nothing"
    return f"{now / was:.1f} times" if now >= 2 * was else f"{100 * (now / was - 1):+.0f} %"


def _compile(then: Document, now: Document) -> Iterator[BaselineDifference]:
    was, times = then["compile"], now["compile"]
    # How much longer the same work takes on this machine now; at least 1, to ignore a lucky run.
    before = was["yardstick"]["best_ms"]
    pace = max(1.0, times["yardstick"]["best_ms"] / before) if before else 1.0
    old, new = (_by_name(d["passes"]) for d in (was, times))
    pairs = [(f"the pass `{k[0]}`", LEAST_MS, old[k], new[k]) for k in new if k in old]
    if was["build"].get("anew"):
        pairs.append(("the build", BUILD_MS, was["build"], times["build"]))
    for name, least, before, after in pairs:
        a, b = pace * before["best_ms"], after["best_ms"]
        for verdict, low, high in (("worse", a, b), ("better", b, a)):
            if high > FACTOR * low and high - low > least:
                said = f"{name} takes {_ms(b)} instead of {_ms(before['best_ms'])}"
                runs = f"best of {after['runs']} and {before['runs']} runs"
                middle = f"medians {_ms(after['median_ms'])} and {_ms(before['median_ms'])}"
                row = name, _ms(before["best_ms"]), _ms(b), f"{FACTOR:g} times, and {_ms(least)}"
                yield BaselineDifference("compile", verdict, f"{said} ({runs}; {middle})", *row)


def _by_name(passes: Mapping[str, Document]) -> dict[tuple[str, int], Document]:
    """Times by a pass's name and the number of earlier passes of that name."""
    seen: Counter[str] = Counter()
    found = {}
    for place, times in passes.items():
        name = place.partition(" ")[2]
        found[name, seen[name]] = times
        seen[name] += 1
    return found


def _ms(value: float) -> str:
    return f"{value / 1e3:.2f} s" if value >= 1e3 else f"{value:.3g} ms"


def _speed(then: Document, now: Document) -> Iterator[BaselineDifference]:
    was, speeds = then.get("speed") or {}, now.get("speed") or {}
    for phase in filter(was.__contains__, speeds):
        old, one = was[phase], speeds[phase]
        for verdict, low, high in (("worse", old, one), ("better", one, old)):
            if high["ratio"] > SPEED * low["ratio"] and high["q1"] > low["q3"]:
                words = phase.replace("_", " and ")
                said = f"{words} takes {_ratio(one)} of eager's time instead of {_ratio(old)}"
                row = words, _ratio(old), _ratio(one), f"{SPEED:g} times"
                yield BaselineDifference("speed", verdict, said, *row)


def _ratio(one: Document) -> str:
    return f"{one['ratio']:.2f} ({one['q1']:.2f} to {one['q3']:.2f})"


_HELD = _error, _pipeline, _operators, _fusion, _captures, _flops, _memory, _compile, _speed
"""The comparisons, each named after its kind."""


def _alike(scopes: Sequence[str]) -> list[list[str]]:
    """Modules in groups whose paths differ only in numbers."""
    found: dict[str, list[str]] = {}
    for scope in scopes:
        found.setdefault(re.sub(r"\d+", "*", scope), []).append(scope)
    return [sorted(dict.fromkeys(like), key=_numbers) for like in found.values()]


def _numbers(path: str) -> list[tuple[int, str]]:
    """A sort key that puts layer 9 before layer 10."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in path.split(".")]


def _in(scopes: Sequence[str], word: str = "in") -> str:
    first = scopes[0] or "the model itself"
    if len(scopes) == 1:
        return f" {word} {first}"
    others = "one module" if len(scopes) == 2 else f"{len(scopes) - 1} modules"
    return f" {word} {first} and {others} like it"


def _listed(said: Sequence[str]) -> str:
    more = len(said) - _SHOWN
    return "; ".join(said[:_SHOWN]) + (f"; and {more} more such differences" if more > 0 else "")
