# SPDX-License-Identifier: Apache-2.0
"""Small models of Hugging Face transformers with TileScope's attention: what their own gives, padded and packed."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tilescope as ts  # noqa: E402
from tilescope.torch import register_transformers  # noqa: E402

_SHAPE = dict(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=None,
)  # fmt: skip
_LENGTHS = (23, 9, 16)


def _models(kind="Llama", **more):
    """The same weights with eager attention, and with ours."""
    register_transformers()
    config = getattr(transformers, f"{kind}Config")(**_SHAPE, **more)
    made = []
    for implementation in ("eager", "tilescope"):
        torch.manual_seed(3)
        config._attn_implementation = implementation
        made.append(getattr(transformers, f"{kind}ForCausalLM")(config).eval())
    return made


def _padded(side):
    """Tokens and mask (B, longest), the former 0 where the latter is."""
    dice = torch.Generator().manual_seed(8)
    tokens = torch.zeros(len(_LENGTHS), max(_LENGTHS), dtype=torch.int64)
    mask = torch.zeros_like(tokens)
    for row, length in enumerate(_LENGTHS):
        place = slice(0, length) if side == "right" else slice(max(_LENGTHS) - length, None)
        tokens[row, place] = torch.randint(2, 97, (length,), generator=dice)
        mask[row, place] = 1
    return tokens, mask


def _check_close(actual, expected):
    assert torch.allclose(actual, expected, atol=1e-4, rtol=1e-4), (actual - expected).abs().max().item()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "kind, more",
    [
        ("Llama", {}),
        ("Mistral", {"sliding_window": 6}),
        ("Gemma2", {"head_dim": 16, "attn_logit_softcapping": 0.5, "sliding_window": 6}),
        ("GptOss", {"head_dim": 16, "sliding_window": 6, "num_local_experts": 2, "num_experts_per_tok": 1}),
    ],
)
def test_a_padded_batch(side, kind, more):
    eager, ours = _models(kind, **more)
    tokens, mask = _padded(side)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    results = [model(tokens, attention_mask=mask, position_ids=positions).logits for model in (eager, ours)]
    _check_close(results[1][mask.bool()], results[0][mask.bool()])
    if side == "left":  # padding, when nobody tells of it, is seen
        without = ours(tokens, position_ids=positions.clone().fill_(0).add(torch.arange(tokens.shape[1]))).logits
        assert not torch.allclose(without[mask.bool()], results[0][mask.bool()], atol=1e-3)


def test_gradients_of_a_padded_batch():
    gradients = []
    for model in _models():
        tokens, mask = _padded("left")
        labels = tokens.masked_fill(mask == 0, -100)
        model(tokens, attention_mask=mask, labels=labels).loss.backward()
        gradients.append([weights.grad for weights in model.parameters()])
    for actual, expected in zip(*reversed(gradients)):
        _check_close(actual, expected)


def test_an_encoder_and_what_asks_it():
    register_transformers()
    config = transformers.BartConfig(
        vocab_size=97, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, pad_token_id=0,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=128, dropout=0.0,
    )  # fmt: skip
    tokens, mask = _padded("right")
    results = []
    for implementation in ("eager", "tilescope"):
        torch.manual_seed(3)
        config._attn_implementation = implementation
        model = transformers.BartForConditionalGeneration(config).eval()
        results.append(model(tokens, attention_mask=mask, decoder_input_ids=tokens[:, :7].clamp(min=2)).logits)
    _check_close(*results)


def test_packed_sequences_are_each_alone():
    _, ours = _models()
    tokens, mask = _padded("right")
    packed = torch.cat([row[:length] for row, length in zip(tokens, _LENGTHS)])[None]
    positions = torch.cat([torch.arange(length) for length in _LENGTHS])[None]
    together = ours(packed, position_ids=positions).logits[0]
    first = 0
    for row, length in zip(tokens, _LENGTHS):
        _check_close(together[first : first + length], ours(row[None, :length]).logits[0])
        first += length


def test_a_left_padded_batch_generates_what_eager_attention_does():
    tokens, mask = _padded("left")
    told = [model.generate(tokens, attention_mask=mask, max_new_tokens=12, do_sample=False) for model in _models()]
    assert torch.equal(*told)


def test_what_the_operators_have_not_is_refused():
    _, ours = _models()
    tokens, mask = _padded("right")
    mask[0, 4] = 0
    with pytest.raises(ts.BadInput, match="row 0 with a hole"):
        ours(tokens, attention_mask=mask)
