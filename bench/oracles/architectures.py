"""What `bench/zoo.py` opens: tiny models of many architectures, by name, with random weights.

Models of transformers are their class, a configuration and kinds of inputs; what transformers does
not have stands here as modules of a few lines.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

Tensors = tuple[torch.Tensor, ...]
_VOCABULARY, _TOKENS, _SIDE = 99, 7, 32


class _Positional(nn.Module):
    """A model with inputs by position, which returns the tensors of its output in order."""

    def __init__(self, whole: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.whole, self.names = whole, names

    def forward(self, *given: torch.Tensor) -> Tensors:
        """The tensors of the output."""
        made = self.whole(**dict(zip(self.names, given, strict=True)), return_dict=True)
        return tuple(t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor))


def _ids() -> torch.Tensor:
    return torch.randint(5, _VOCABULARY - 5, (2, _TOKENS))


def _mask() -> torch.Tensor:
    mask = torch.ones(2, _TOKENS, dtype=torch.int64)
    mask[1, -2:] = 0
    return mask


_INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "input_ids": _ids,
    "attention_mask": _mask,
    "decoder_input_ids": _ids,
    "pixel_values": lambda: torch.randn(1, 3, _SIDE, _SIDE),
    "input_values": lambda: torch.randn(1, 1000),
    "input_features": lambda: torch.randn(1, 8, 40),
    "past_values": lambda: torch.randn(1, 32, 2),
    "spectrogram": lambda: torch.randn(1, 40, 16),
    "bbox": lambda: torch.randint(0, 30, (2, _TOKENS, 4)).sort(-1).values,
    "inputs": lambda: torch.randn(1, 9, 12),
}
_INPUTS["images"] = lambda: torch.randn(2, 3, _SIDE, _SIDE)
"""Two: of one, PyTorch 2.13 takes another gradient of a batch norm whose result is transposed."""
_RENAMED = {"spectrogram": "input_values", "images": "pixel_values"}

_TABLE = """
Options:
  $wide vocab_size=99 max_position_embeddings=64 pad_token_id=0
  $text $wide hidden_size=32 num_hidden_layers=1 num_attention_heads=4 intermediate_size=64
  $grouped $text num_key_value_heads=2 head_dim=8
  $both $wide d_model=32 encoder_layers=1 decoder_layers=1 encoder_attention_heads=4
      decoder_attention_heads=4 encoder_ffn_dim=64 decoder_ffn_dim=64 decoder_start_token_id=0
      eos_token_id=2 bos_token_id=1
  $t5 vocab_size=99 d_model=32 d_kv=8 d_ff=64 num_layers=1 num_heads=4 decoder_start_token_id=0
      pad_token_id=0
  $gpt vocab_size=99 n_positions=64 n_embd=32 n_layer=1 n_head=4
  $patches image_size=32 patch_size=8 hidden_size=32 num_hidden_layers=1 num_attention_heads=4
      intermediate_size=64
  $levels hidden_sizes=[8,16,16,32] depths=[1,1,1,1]
  $stages $levels embedding_size=8
  $heads $levels num_attention_heads=[1,2,2,4]
  $swin image_size=32 patch_size=2 embed_dim=16 depths=[1,2] num_heads=[2,4] window_size=4
  $sound $text conv_dim=(16,16,16) conv_kernel=(8,4,4) conv_stride=(4,2,2)
      num_conv_pos_embeddings=8 num_conv_pos_embedding_groups=2 num_feat_extract_layers=3
Encoders:
  bert BertModel input_ids+attention_mask $text
  bert-no-mask BertModel input_ids $text
  roberta RobertaModel input_ids+attention_mask $text pad_token_id=1
  xlm-roberta XLMRobertaModel input_ids+attention_mask $text pad_token_id=1
  distilbert DistilBertModel input_ids+attention_mask $wide dim=32 n_layers=1 n_heads=4
      hidden_dim=64
  electra ElectraModel input_ids+attention_mask $text embedding_size=16
  albert AlbertModel input_ids+attention_mask $text embedding_size=16
  deberta-v2 DebertaV2Model input_ids+attention_mask $text relative_attention=True
      pos_att_type=['c2p','p2c']
  mpnet MPNetModel input_ids+attention_mask $text pad_token_id=1
  ernie ErnieModel input_ids+attention_mask $text
  roformer RoFormerModel input_ids+attention_mask $text
  convbert ConvBertModel input_ids+attention_mask $text embedding_size=32
  squeezebert SqueezeBertModel input_ids+attention_mask $text embedding_size=32
  modernbert ModernBertModel input_ids+attention_mask $text num_hidden_layers=2
      global_attn_every_n_layers=2 eos_token_id=2 bos_token_id=1
  xlnet XLNetModel input_ids vocab_size=99 d_model=32 n_layer=1 n_head=4
  layoutlm LayoutLMModel input_ids+bbox $text
  fnet FNetModel input_ids $text
  funnel FunnelModel input_ids vocab_size=99 block_sizes=[1,1] d_model=32 n_head=4 d_head=8
      d_inner=64
  longformer LongformerModel input_ids $text attention_window=4
  bigbird BigBirdModel input_ids $text attention_type='original_full'
  nystromformer NystromformerModel input_ids $text num_landmarks=7 segment_means_seq_len=7
Decoders:
  gpt2 GPT2Model input_ids $gpt
  gpt2-mask GPT2Model input_ids+attention_mask $gpt
  gpt-neo GPTNeoModel input_ids $wide hidden_size=32 num_layers=2 num_heads=4
      attention_types=[[['global','local'],1]] window_size=4
  gpt-neox GPTNeoXModel input_ids $text
  gptj GPTJModel input_ids $gpt rotary_dim=4
  opt OPTModel input_ids+attention_mask $wide hidden_size=32 num_hidden_layers=1
      num_attention_heads=4 ffn_dim=64 word_embed_proj_dim=32
  bloom BloomModel input_ids vocab_size=99 hidden_size=32 n_layer=1 n_head=4
  llama LlamaModel input_ids $grouped
  llama-mask LlamaModel input_ids+attention_mask $grouped
  mistral MistralModel input_ids $grouped sliding_window=4
  qwen2 Qwen2Model input_ids $grouped
  qwen3 Qwen3Model input_ids $grouped
  gemma GemmaModel input_ids $grouped
  gemma2 Gemma2Model input_ids $grouped sliding_window=4
      num_hidden_layers=2
  phi PhiModel input_ids $text eos_token_id=2 bos_token_id=1
  phi3 Phi3Model input_ids $grouped eos_token_id=2 bos_token_id=1
  falcon FalconModel input_ids vocab_size=99 hidden_size=32 num_hidden_layers=1
      num_attention_heads=4
  stablelm StableLmModel input_ids $grouped
  starcoder2 Starcoder2Model input_ids $grouped
  olmo OlmoModel input_ids $grouped
  codegen CodeGenModel input_ids $gpt rotary_dim=4
  ctrl CTRLModel input_ids $gpt dff=64
  biogpt BioGptModel input_ids+attention_mask $text
Mixtures of experts:
  mixtral MixtralModel input_ids $grouped num_local_experts=4 sliding_window=None
  mixtral-batched MixtralModel input_ids $grouped num_local_experts=4 sliding_window=None
      experts_implementation='batched_mm'
  qwen2-moe Qwen2MoeModel input_ids $grouped num_experts=4 num_experts_per_tok=2
      moe_intermediate_size=32 shared_expert_intermediate_size=32
      experts_implementation='batched_mm'
  switch-transformers SwitchTransformersModel input_ids+decoder_input_ids $t5 num_experts=4
      num_sparse_encoder_layers=1 num_sparse_decoder_layers=1
State spaces:
  mamba MambaModel input_ids vocab_size=99 hidden_size=32 num_hidden_layers=1 state_size=4
  rwkv RwkvModel input_ids vocab_size=99 hidden_size=32 num_hidden_layers=2 context_length=16
Encoders with decoders:
  t5 T5Model input_ids+decoder_input_ids $t5
  mt5 MT5Model input_ids+decoder_input_ids $t5
  bart BartModel input_ids+decoder_input_ids $both
  mbart MBartModel input_ids+decoder_input_ids $both
  marian MarianModel input_ids+decoder_input_ids $both
  pegasus PegasusModel input_ids+decoder_input_ids $both
  blenderbot BlenderbotModel input_ids+decoder_input_ids $both
  m2m-100 M2M100Model input_ids+decoder_input_ids $both
  prophetnet ProphetNetModel input_ids+decoder_input_ids $wide hidden_size=32 num_encoder_layers=1
      num_decoder_layers=1 num_encoder_attention_heads=4 num_decoder_attention_heads=4
      encoder_ffn_dim=64 decoder_ffn_dim=64
Vision:
  vit ViTModel pixel_values $patches
  deit DeiTModel pixel_values $patches
  beit BeitModel pixel_values $patches use_relative_position_bias=True
  dinov2 Dinov2Model pixel_values $patches
  yolos YolosModel pixel_values $patches image_size=[32,32] num_detection_tokens=4
  swin SwinModel pixel_values $swin
  swinv2 Swinv2Model pixel_values $swin
  convnext ConvNextModel pixel_values $levels patch_size=4
  convnextv2 ConvNextV2Model pixel_values $levels patch_size=4
  resnet ResNetModel pixel_values $stages layer_type='basic'
  resnet-bottleneck ResNetModel pixel_values $stages
  regnet RegNetModel pixel_values $stages groups_width=8
  mobilenet-v1 MobileNetV1Model pixel_values image_size=32 depth_multiplier=0.25
  mobilenet-v2 MobileNetV2Model pixel_values image_size=32 depth_multiplier=0.25
  mobilevit MobileViTModel pixel_values image_size=32 hidden_sizes=[16,16,16]
      neck_hidden_sizes=[8,8,8,16,16,16,16] num_attention_heads=2
  efficientnet EfficientNetModel pixel_values image_size=32 width_coefficient=0.25
      depth_coefficient=0.2 hidden_dim=320
  segformer SegformerModel pixel_values $heads
  poolformer PoolFormerModel pixel_values $levels
  levit LevitModel images $heads image_size=64 hidden_sizes=[16,16,32]
      num_attention_heads=[2,2,2] depths=[1,1,1] key_dim=[8,8,8]
      down_ops=[['Subsample',8,2,4,2,2],['Subsample',8,2,4,2,2]]
  cvt CvtModel pixel_values embed_dim=[8,16,16] num_heads=[1,2,2] depth=[1,1,1]
  pvt PvtModel pixel_values $heads image_size=32 sequence_reduction_ratios=[4,2,1,1]
  pvt-v2 PvtV2Model pixel_values $heads image_size=32 sr_ratios=[4,2,1,1]
  clip-text CLIPTextModel input_ids $text bos_token_id=1 eos_token_id=2
  clip-vision CLIPVisionModel pixel_values $patches
  siglip-vision SiglipVisionModel pixel_values $patches
  perceiver PerceiverModel inputs d_model=12 d_latents=16 num_latents=5 num_blocks=1
      num_self_attends_per_block=1 num_self_attention_heads=2 num_cross_attention_heads=2
Speech and series:
  wav2vec2 Wav2Vec2Model input_values $sound
  hubert HubertModel input_values $sound
  wavlm WavLMModel input_values $sound num_buckets=16 max_bucket_distance=32
  audio-spectrogram ASTModel spectrogram patch_size=8 hidden_size=32 num_hidden_layers=1
      num_attention_heads=4 intermediate_size=64 num_mel_bins=16 max_length=40
  whisper WhisperModel input_features+decoder_input_ids $both num_mel_bins=8
      max_source_positions=20 max_target_positions=20
  patchtst PatchTSTModel past_values num_input_channels=2 context_length=32 patch_length=8
      patch_stride=8 d_model=32 num_attention_heads=4 ffn_dim=64 num_hidden_layers=1
"""
"""By kind: a model's name, its class, its inputs joined by +, and its options, where $ stands for
others with a name. What stands further to the right goes on."""


def _block(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outside), nn.ReLU(inplace=True))


def _alexnet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 11, 4, 5), nn.ReLU(), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten()),
        *(nn.Dropout(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def _vgg() -> nn.Module:
    stages = [x for a, b in ((3, 8), (8, 16)) for x in (_block(a, b), nn.MaxPool2d(2, 2))]
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))


class _Together(nn.Module):
    """Branches side by side, joined along the channels, as in Inception and SqueezeNet."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The branches' results, joined."""
        return torch.cat([b(x) for b in self.branches], 1)


def _inception() -> nn.Module:
    pool = nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.Conv2d(8, 4, 1))
    tall = nn.Sequential(
        nn.Conv2d(8, 4, (1, 7), padding=(0, 3)), nn.Conv2d(4, 4, (7, 1), padding=(3, 0))
    )
    mixed = _Together(nn.Conv2d(8, 4, 1), _block(8, 8), tall, pool)
    return nn.Sequential(
        _block(3, 8, 2), mixed, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(20, 10)
    )


def _squeezenet() -> nn.Module:
    fire = nn.Sequential(
        nn.Conv2d(16, 4, 1), nn.ReLU(), _Together(nn.Conv2d(4, 8, 1), nn.Conv2d(4, 8, 3, padding=1))
    )
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(
        _block(3, 16, 2), pool, fire, nn.Conv2d(16, 10, 1), nn.AdaptiveAvgPool2d(1)
    )


class _DenseNet(nn.Module):
    """Each layer reads all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 8, 3, padding=1, bias=False))
            for c in (3, 11, 19)
        )
        self.end = nn.Linear(27, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of classes."""
        seen = [x]
        for layer in self.layers:
            seen.append(layer(torch.cat(seen, 1)))
        made: torch.Tensor = self.end(F.avg_pool2d(torch.cat(seen, 1), _SIDE).flatten(1))
        return made


class _ShuffleNet(nn.Module):
    """Half of the channels go by; then they are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = _block(3, 16, 2)
        deep = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.branch = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), deep, nn.BatchNorm2d(8))
        self.end = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of classes."""
        a, b = self.begin(x).chunk(2, 1)
        x = torch.cat([a, self.branch(b)], 1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        made: torch.Tensor = self.end(x.mean((2, 3)))
        return made


class _UNet(nn.Module):
    """Down, and up again beside what was there.

    Args:
        up: "learned" for transposed convolutions, else a mode of interpolation.
    """

    def __init__(self, up: str) -> None:
        super().__init__()
        self.up = up
        self.first, self.second, self.third = _block(3, 8), _block(8, 16), _block(16, 16)
        self.wider = nn.ConvTranspose2d(16, 16, 2, 2) if up == "learned" else nn.Conv2d(16, 16, 1)
        self.fourth, self.fifth = _block(32, 8), _block(16, 8)
        self.end = nn.Conv2d(8, 2, 1)

    def _larger(self, x: torch.Tensor) -> torch.Tensor:
        corners = {"align_corners": False} if self.up == "bilinear" else {}
        return F.interpolate(x, scale_factor=2, mode=self.up, **corners)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of each pixel's classes."""
        one = self.first(x)
        two = self.second(F.max_pool2d(one, 2))
        three = self.wider(self.third(F.max_pool2d(two, 2)))
        mode = "nearest" if self.up == "learned" else self.up
        three = three if self.up == "learned" else self._larger(three)
        four = self.fourth(torch.cat([two, three], 1))
        made: torch.Tensor = self.end(
            self.fifth(torch.cat([one, F.interpolate(four, size=one.shape[2:], mode=mode)], 1))
        )
        return made


class _Recurrent(nn.Module):
    """Tokens through a recurrent net of two layers, then classes."""

    def __init__(self, kind: type[nn.RNNBase], both: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, 16)
        self.inner = kind(16, 12, num_layers=1, batch_first=True, bidirectional=both)
        self.end = nn.Linear(24 if both else 12, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores of classes."""
        states = self.inner(self.embedding(ids))[0]
        made: torch.Tensor = self.end(states[:, -1])
        return made


class _Causal(nn.Module):
    """Dilated convolutions over time that see the past alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(8, 8, 3, dilation=d) for d in (1, 2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As long as what it gets."""
        for layer in self.layers:
            x = x + F.relu(layer(F.pad(x, (2 * layer.dilation[0], 0))))
        return x


def _image() -> Tensors:
    return (torch.randn(1, 3, _SIDE, _SIDE),)


def _tokens() -> Tensors:
    return (_ids(),)


_OWN: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensors]]] = {
    "alexnet": (_alexnet, _image),
    "vgg": (_vgg, _image),
    "inception": (_inception, _image),
    "squeezenet": (_squeezenet, _image),
    "densenet": (_DenseNet, _image),
    "shufflenet": (_ShuffleNet, _image),
    "unet": (lambda: _UNet("learned"), _image),
    "unet-nearest": (lambda: _UNet("nearest"), _image),
    "unet-bilinear": (lambda: _UNet("bilinear"), _image),
    "rnn": (lambda: _Recurrent(nn.RNN), _tokens),
    "lstm": (lambda: _Recurrent(nn.LSTM), _tokens),
    "lstm-both-ways": (lambda: _Recurrent(nn.LSTM, True), _tokens),
    "gru": (lambda: _Recurrent(nn.GRU), _tokens),
    "tcn": (_Causal, lambda: (torch.randn(1, 8, 20),)),
    "transformer": (
        lambda: nn.Transformer(32, 4, 1, 1, 64, batch_first=True),
        lambda: (torch.randn(2, 5, 32), torch.randn(2, 4, 32)),
    ),
}


def _read(table: str) -> dict[str, dict[str, list[str]]]:
    """By kind and name the words of a table."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in table.replace("\n      ", " ").strip().splitlines():
        if line.startswith(" "):
            name, *words = line.split()
            found[next(reversed(found))][name] = words
        else:
            found[line.rstrip(":")] = {}
    return found


_KINDS = _read(_TABLE)
_SETS = _KINDS.pop("Options")
GROUPS = {k: list(rows) for k, rows in _KINDS.items()} | {"Classic nets": list(_OWN)}
"""Names by kind; `architecture` makes a model of each."""


def _options(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        found |= {name: ast.literal_eval(value)} if value else _options(_SETS[name])
    return found


def architecture(name: str) -> tuple[nn.Module, Tensors]:
    """A model in eval mode with random weights, and its inputs; the same each time."""
    torch.manual_seed(0)
    if name in _OWN:
        make, inputs = _OWN[name]
        return make().eval(), inputs()
    import transformers

    kind, wanted, *words = next(rows[name] for rows in _KINDS.values() if name in rows)
    options, names = _options(words), wanted.split("+")
    of = getattr(transformers, kind)
    config = of.config_class(**options)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    whole = of(config)
    given = [_INPUTS[n]() for n in names]
    if isinstance(side := options.get("image_size"), int):
        given = [torch.randn(len(given[0]), 3, side, side)]
    return _Positional(whole, tuple(_RENAMED.get(n, n) for n in names)).eval(), tuple(given)
