"""A submodule that is cut out of a model, beside the same module cut out by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertModel

from answers import quiet
from limits import OUTPUT
from quick import ENGINE, QUICK
from relascope.core.errors import EngineError
from relascope.engine.in_process import load_engine
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.pytorch.model import Opened
from relascope.engine.server.session import PipelineSession
from relascope.passes.catalogue import default_pipeline
from relascope.samples.weights import stir
from traces import Fn, Parts, save

PATH = "encoder.layer.1"


def first(m: Any, hidden: torch.Tensor, mask: torch.Tensor) -> Any:
    made = m.layer(hidden, mask)
    return made[0] if isinstance(made, tuple) else made


def small_bert() -> Opened:
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        vocab_size=50,
        attn_implementation="eager",
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = BertModel(config).eval()
        stir(module)
        inputs = torch.randint(50, (2, 5)), torch.tensor([[1, 1, 1, 1, 0]] * 2)
    return Opened(module, ("input_ids", "attention_mask"), inputs)


def test_a_submodules_check_is_that_of_the_module_cut_out_by_hand() -> None:
    opened = small_bert()
    seen: list[Any] = []
    layer: Any = opened.module.get_submodule(PATH)
    hook = layer.register_forward_pre_hook(
        lambda _, args, named: seen.append((*args, *named.values())), with_kwargs=True
    )
    with torch.no_grad():
        opened.module(*opened.inputs)
    hook.remove()
    tensors = tuple(v.clone() for v in seen[0] if isinstance(v, torch.Tensor))
    by_hand = Parts(first, layer=layer).eval()

    backend, answers = load_engine(ENGINE), []
    whole = ModelSource("bert")
    alone = Opened(by_hand, ("hidden_states", "attention_mask"), tensors)
    for source, given in ((replace(whole, module=PATH), opened), (whole, alone)):
        session = PipelineSession(backend)
        session.programs._opened.get(whole, lambda given=given: given)  # type: ignore[misc]
        info = session.load(source, progress=quiet)
        request = BuildRequest(source, default_pipeline(ENGINE, False), QUICK)
        found = session.check(request, progress=quiet)
        types = [t for _, t in info.arguments]
        answers.append((found, types, info.graph.operators, info.parameters))
    assert answers[0] == answers[1]
    ((output,), *_) = answers[0]
    assert output.max_rel < OUTPUT


def changed(m: Any, x: torch.Tensor) -> torch.Tensor:
    x = m.dropout(m.linear(x)).contiguous()
    x.add_(m.shift)
    x[:, :2] = x[:, 2:]
    return torch.logaddexp(x, x).view(x.size(0), 2, 2)


def test_what_an_import_did_is_listed_with_its_nodes() -> None:
    session = PipelineSession(load_engine(ENGINE))
    layers = {"linear": nn.Linear(4, 4), "unread": nn.Linear(4, 4), "dropout": nn.Dropout()}
    module = Parts(changed, **layers, shift=torch.ones(4))
    opened = Opened(module.eval(), ("x",), (torch.randn(2, 4),))
    session.programs._opened.get(ModelSource("mlp"), lambda: opened)
    info = session.load(ModelSource("mlp"), progress=quiet)
    found = {(c.kind, c.operator): c for c in info.changes}
    counts = {key: c.count for key, c in found.items()}
    # Relay has an operator for a dropout that is off.
    dropout = {("dropped", "aten::dropout"): 1} if ENGINE == "relax" else {}
    assert counts == dropout | {
        ("changed", "aten::add_"): 1,
        ("changed", "aten::copy_"): 1,
        ("changed", "aten::logaddexp"): 1,
        ("dropped", "aten::contiguous"): 1,
        ("dropped", "aten::size"): 1,
        ("dropped", "aten::Int"): 1,
        ("dropped", "unread.weight, …"): 2,
        ("externalised", "linear.weight, …"): 2,
        ("externalised", "shift"): 1,
    }
    by_id = info.graph.by_id
    added = found["changed", "aten::add_"]
    assert added.became == {"add": 1} and by_id[added.nodes[0]].op == "add"
    assert "in place" in added.what
    composed = found["changed", "aten::logaddexp"]
    assert len(composed.nodes) > 1 and sum(composed.became.values()) == len(composed.nodes)
    assert {by_id[i].source for i in composed.nodes} == {"aten::logaddexp"}
    assert [by_id[i].name for i in found["externalised", "shift"].nodes] == ["shift"]
    assert found["dropped", "unread.weight, …"].modules == ("unread",)
    assert not found["dropped", "aten::size"].nodes
    (before,) = found["dropped", "aten::contiguous"].nodes  # what stands in its place
    assert by_id[before].source == ("aten::linear" if ENGINE == "relax" else "aten::dropout")


def _run(run: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    return Fn(lambda x, weight, bias: nn.functional.linear(x, weight, bias) + run(x), (4, 4), (4,))


def test_what_is_offered_of_a_model_that_is_refused_opens(tmp_path: Path) -> None:
    """The refusal names one operator; the largest submodule without it has another such."""
    chosen = _run(lambda x: x[x > 0].sum())
    second = nn.Sequential(_run(torch.relu), nn.Linear(4, 4), chosen)
    third = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    module = nn.Sequential(_run(lambda x: torch.poisson(x.abs() + 1).sum()), second, third)
    programs = PipelineSession(load_engine(ENGINE)).programs
    source = source_from_file(save(module.eval(), (torch.randn(2, 4),), tmp_path / "m.pt"))
    with pytest.raises(EngineError, match="random numbers") as caught:
        programs.loaded(source, quiet)
    assert caught.value.instead == ("2", "1.0")
    for path in caught.value.instead:
        programs.loaded(replace(source, module=path), quiet)
    with pytest.raises(EngineError, match="depends on values") as caught:
        programs.loaded(replace(source, module="1"), quiet)
    assert caught.value.instead == ("1.0",)
