"""Regressions to plant in a compile, which a gate must name, and the model for them.

Each is a pass file, and a model's file, that take the places of sound ones: the pipeline and its
pass `own` are called the same, so nothing but what they do tells them apart."""

from dataclasses import dataclass
from pathlib import Path

MODEL = """
import torch
from torch import nn

ACTIVATION, BLOCKS = nn.GELU, 3

class Twice(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x) * torch.tanh(x)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense, self.act, self.norm = nn.Linear(64, 64), ACTIVATION(), nn.LayerNorm(64)

    def forward(self, x):
        return self.norm(x + self.act(self.dense(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(64, 16)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def make():
    torch.manual_seed(0)
    return Net(), (torch.randn(8, 64),)
"""

_HEAD = {
    "relay": """
IR = "relay"
import time
import tvm
from tvm import relay
from relascope.passes.relay.ir.rewrite import op_name, rewrite

def each(program, name, make, most=1):
    done = []
    def visit(call, args):
        if op_name(call) == name and len(done) < most:
            done.append(call)
            return make(relay.Call(call.op, args, call.attrs), call.args, call.checked_type.dtype)
        return None
    return rewrite(program, visit)

PRODUCT = "nn.dense"
cast, multiply = relay.cast, relay.multiply
add, const, transpose, matmul = relay.add, relay.const, relay.transpose, relay.nn.matmul

def repeat(x, count):
    return relay.tile(x, (count, 1))

def slice_(x, count):
    return relay.strided_slice(x, [0], [count], axes=[0])
""",
    "relax": """
IR = "relax"
import time
import tvm
from tvm import relax
from relascope.passes.relax.ir.rewrite import dtype, op_name, rewrite

def each(program, name, make, most=1):
    done = []
    def rule(call, maker):
        if op_name(call) == name and len(done) < most:
            done.append(call)
            return make(call, call.args, dtype(call))
        return None
    return rewrite(program, rule)

PRODUCT = "matmul"
cast, multiply = relax.op.astype, relax.op.multiply
add, const, transpose, matmul = relax.op.add, relax.const, relax.op.permute_dims, relax.op.matmul

def repeat(x, count):
    return relax.op.tile(x, [count, 1])

def slice_(x, count):
    return relax.op.strided_slice(x, [0], [0], [count])
""",
}

SOUND = "def own(program):\n    return program\n"


@dataclass(frozen=True)
class Planted:
    """A regression: what happened, the kind of the difference that must name it, words that its
    sentence must have (of any engine, or by engine), and the pass `own` or model that does it."""

    title: str
    kind: str
    words: str | dict[str, str]
    own: str = SOUND
    model: tuple[str, str] = ("", "")
    training: bool = False

    def says(self, ir: str) -> str:
        return self.words if isinstance(self.words, str) else self.words[ir]


PLANTED = (
    Planted(
        "a fusion lost",
        "fusion",
        "is no longer fused with",
        """
def own(program):
    tvm.transform.PassContext(config={f"{IR}.FuseOps.max_depth": 1}).__enter__()
    return program
""",
    ),
    Planted(
        "a cast added",
        "operators",
        {"relay": "2 `cast` more in blocks.0.dense", "relax": "2 `astype` more in blocks.0.dense"},
        """
def own(program):
    return each(program, PRODUCT, lambda call, args, kind: cast(cast(call, "float64"), kind))
""",
    ),
    Planted(
        "a layer dropped",
        "operators",
        "the module blocks.2 is gone",
        model=("range(BLOCKS)", "range(BLOCKS - 1)"),
    ),
    Planted(
        "a slower pass",
        "compile",
        "the pass `own` takes",
        """
def own(program):
    end = time.perf_counter() + 0.06
    while time.perf_counter() < end:
        pass
    return program
""",
    ),
    Planted(
        "transposes added",
        "operators",
        {
            "relay": "2 `transpose` more in blocks.0.dense",
            "relax": "2 `permute_dims` more in blocks.0.dense",
        },
        """
def own(program):
    return each(program, PRODUCT, lambda call, args, kind: transpose(transpose(call)))
""",
    ),
    Planted(
        "numbers off by a thousandth",
        "wrong",
        "over the limit in float64",
        """
def own(program):
    return each(program, PRODUCT, lambda call, args, kind: multiply(call, const(1.001, kind)))
""",
    ),
    Planted(
        "a product computed twice",
        "flops",
        {"relay": "`nn.dense`", "relax": "`matmul`"},
        """
def own(program):
    def twice(call, args, kind):
        half = const(0.5, kind)
        if IR == "relay":
            again = relay.Call(call.op, [multiply(call.args[0], half), call.args[1]], call.attrs)
        else:
            again = matmul(multiply(call.args[0], half), call.args[1])
        return add(again, multiply(call, half))
    return each(program, PRODUCT, twice, 2)
""",
    ),
    Planted(
        "a tensor held sixty-four times",
        "memory",
        "what is built takes",
        """
def own(program):
    def held(call, args, kind):
        wide, weight = repeat(call.args[0], 64), call.args[1]
        if IR == "relay":
            return slice_(relay.Call(call.op, [wide, weight], call.attrs), 8)
        return slice_(matmul(wide, weight), 8)
    return each(program, PRODUCT, held)
""",
    ),
    Planted(
        "more saved for the backward",
        "captures",
        "keep_all",
        model=("ACTIVATION, BLOCKS = nn.GELU", "ACTIVATION, BLOCKS = lambda: Twice()"),
        training=True,
    ),
)


def write(folder: Path, ir: str, planted: Planted | None = None) -> tuple[Path, Path]:
    """Write the model's file and the pass file, sound or with a regression; returns both."""
    model, own = folder / "net.py", folder / "own.py"
    before, after = ("", "") if planted is None else planted.model
    assert before in MODEL
    model.write_text(MODEL.replace(before, after) if before else MODEL)
    own.write_text(_HEAD[ir] + (SOUND if planted is None else planted.own))
    return model, own
