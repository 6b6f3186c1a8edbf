"""A target as a person writes it: a kind and options, TVM's and those that relascope adds."""

import re
from collections.abc import Collection, Mapping

from relascope.core.errors import EngineError

GPU = "gpu"
"""The option that chooses one of several GPUs, from 0."""

_TEXTS = frozenset(
    ["mcpu", "mtriple", "arch", "model", "device", "host", "tag", "mabi", "mfloat-abi", "jit"]
)
_LISTS = frozenset(["keys", "libs", "mattr", "cl-opt"])
_HINT = 'Write a kind and options, such as "llvm -mcpu=haswell" or "cuda -arch=sm_90".'

Value = str | int | bool | list[str]


def parse_target(target: str) -> tuple[str, dict[str, str]]:
    """The kind, and the text of each option by its name; "true" for a name alone. Raises
    EngineError of kind "target" for a text of another form."""
    kind, *options = target.split() or [""]
    if not re.fullmatch(r"[\w/.-]+", kind) or kind.startswith("-"):
        raise EngineError("target", "The target does not begin with its kind.", target, _HINT)
    found: dict[str, str] = {}
    for option in options:
        name, equals, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not name or (equals and not value):
            message = f"Cannot read {option!r} in the target {target!r}."
            raise EngineError("target", message, target, _HINT)
        found[name] = value if equals else "true"
    return kind, found


def typed(options: dict[str, str]) -> dict[str, Value]:
    """Options with the types that TVM expects: text, list, whole number, switch."""
    return {name: _typed(name, text) for name, text in options.items()}


def _typed(name: str, text: str) -> Value:
    if name in _LISTS:
        return text.split(",")
    if name in _TEXTS:
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def without(target: str, ours: Collection[str]) -> str:
    """A target's text without the options in `ours`, which are not TVM's, each given with its value
    ("-schedules=relascope") or as a bare name ("gpu")."""
    parts = (part for part in target.split() if part not in ours)
    return " ".join(part for part in parts if part.lstrip("-").partition("=")[0] not in ours)


def refuse_elsewhere(target: str, ours: Mapping[str, tuple[Collection[str], str]]) -> None:
    """Refuse (kind "target") an option of ours that is not for a target's kind. `ours` has, by
    option, such as "-graphs=cuda", the kinds that it is for, and the message for others."""
    kind, *options = target.split()
    for option, (kinds, why) in ours.items():
        if option in options and kind not in kinds:
            raise EngineError("target", why, target, f"Leave out {option}.")


def library(target: str, ours: Collection[str]) -> str:
    """The library among `ours`, such as "-libs=blas", that computes a target's matrix products, or
    ""; TVM's own, such as cudnn, do not count."""
    return next((part.partition("=")[2] for part in target.split() if part in ours), "")


def gpu_index(target: str) -> int:
    """Which of several GPUs a target is for. Raises EngineError of kind "target" where that is not
    a number."""
    text = parse_target(target)[1].get(GPU, "0")
    if not text.isdigit():
        message, hint = f"-{GPU}={text} is not the number of a GPU.", f"Write such as -{GPU}=1."
        raise EngineError("target", message, target, hint)
    return int(text)


def refused(error: Exception, target: str) -> EngineError:
    text = re.sub(r"\.?\s*Target creation from .*", "", str(error), flags=re.DOTALL)
    reason = re.sub(r"^.*?Check failed: .*?(?:false|\)) ?: ", "", text.strip().rpartition("\n")[2])
    while re.match(r"\w*Error: ?", reason):
        reason = reason.partition(":")[2].strip()
    message = f"TVM refuses this target: {reason.rstrip('.') or 'it gives no reason'}."
    return EngineError("target", message, target, _HINT)
