"""What an engine's importer cannot keep as in PyTorch, in words; the same for every IR."""

from collections.abc import Sequence
from typing import Any

from relascope.core.errors import EngineError, lines_of
from relascope.engine.pytorch.flat_trace import LATER, TraceOrigin
from relascope.engine.pytorch.model import Model

SHARED_STATISTICS = (
    "The running statistics of this batch norm are not its own buffers.",
    "Let no other part of the model read or compute them, or put it in eval mode.",
)
REWRITE = "Write this part of the model with other operators."
_CHOOSE = "Compute all elements, and select with torch.where(mask, a, b), whose shape is fixed."
_EXPERTS = 'Give all experts one shape: model.set_experts_implementation("batched_mm").'


_RAW = (TypeError, AttributeError, LookupError, ArithmeticError)
_INSIDE = ("Error:", "Check failed", "span=", "object has no attribute")


def unknown(frontend: str, operator: str) -> tuple[str, str]:
    """The message and hint for an operator that TVM's frontend does not know."""
    more = "" if frontend == "Relax" else "Try Relax, which knows more operators, or "
    hint = f"{more}{REWRITE[0].lower()}{REWRITE[1:]}" if more else REWRITE
    return f"{frontend}'s PyTorch frontend does not know the operator {operator}.", hint


def all_unknown(
    frontend: str, operators: Sequence[tuple[str, TraceOrigin]], model: Model
) -> EngineError:
    """The error for all such operators of a model, each with the operator that it comes from and
    its places, and with submodules that have none of them."""
    inner: dict[str, dict[str, None]] = {}
    places: dict[str, dict[int, str]] = {}
    for operator, origin in operators:
        inner.setdefault(origin.operator, {})[operator] = None
        where = f"in {origin.scope}" if origin.scope else "at the top"
        places.setdefault(origin.operator, {})[origin.ordinal] = where
    message, hint = unknown(frontend, operators[0][0])
    if len(operators) > 1:
        listed = "; ".join(
            _told(operator, [*inner[operator]], [*places[operator].values()]) for operator in inner
        )
        several = "these operators" if len(inner) > 1 else "this operator"
        message = f"{frontend}'s PyTorch frontend does not know {several}: {listed}."
    parts = model.flat.parts_without(model.module, {o.operator for _, o in operators})
    return EngineError("operator", message, operators[0][1].where, hint, parts)


_NAMED = 5


def _told(operator: str, inner: Sequence[str], places: Sequence[str]) -> str:
    """An operator with those that PyTorch makes of it, how often it occurs, and where."""
    several = list(dict.fromkeys(places))
    made = f" (made of {', '.join(inner)})" if [*inner] != [operator] else ""
    times = f" {len(places)} times," if len(places) > 1 else ""
    more = f" and {len(several) - _NAMED} more" if len(several) > _NAMED else ""
    return f"{operator}{made}{times} {', '.join(several[:_NAMED])}{more}"


def by_values(operator: str, origin: TraceOrigin, model: Model) -> EngineError:
    """The error that a shape depends on values; for transformers' experts, which form to choose."""
    message = f"The shape of {operator}'s result depends on values, and shapes must be static."
    inner: Any = dict(model.module.named_modules()).get(LATER.sub("", origin.scope))
    kind = getattr(inner, "original_name", "")  # all that a trace from a file has of it
    formed = hasattr(inner, "is_transposed") or kind.endswith("Experts")
    return EngineError("operator", message, origin.where, _EXPERTS if formed else _CHOOSE)


def unconverted(frontend: str, operator: str, origin: TraceOrigin, wrong: Exception) -> EngineError:
    """The error for a failure of TVM's frontend; `frontend` is "Relay" or "Relax"."""
    words = f"{frontend}'s PyTorch frontend cannot convert {operator} as it is used here"
    return EngineError("operator", words + reason(wrong), origin.where, REWRITE)


def reason(wrong: Exception) -> str:
    """The end of a sentence: what PyTorch or TVM said, unless it is about their own code."""
    said = lines_of(wrong)[-1]
    raw = isinstance(wrong, _RAW) or any(part in said for part in _INSIDE)
    return "." if raw else f": {said}"


def note_updates(model: Model, updates: Sequence[str]) -> None:
    """Note how many buffers a run changes, if any."""
    if updates:
        model.note(
            f"A run changes {len(updates)} buffers (running statistics). The program returns their "
            "new values after the outputs."
        )
