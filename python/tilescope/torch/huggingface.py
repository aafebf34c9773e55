# SPDX-License-Identifier: Apache-2.0
"""Attention for Hugging Face transformers: batches that are padded or packed, as the sequences in them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..errors import MissingPackage, bad_input

#: Score modifiers by what models call them.
_MODIFIERS = {"softcap": "softcap", "s_aux": "learned_sink"}
_told = WeakIdKeyDictionary()  # of a mask, which all layers of a model are given, the sequences


def register(name: str, attention: Callable[..., torch.Tensor]) -> None:
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError:
        raise MissingPackage("transformers with AttentionMaskInterface is missing: pip install transformers") from None

    def implementation(module, query, key, value, attention_mask=None, scaling=None, dropout=0.0, **options):
        if options.get("head_mask") is not None:
            raise bad_input("head_mask", "given", "must be left out: a head's result is not scaled")
        mods = {ours: options[theirs] for theirs, ours in _MODIFIERS.items() if options.get(theirs) is not None}
        causal = options.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        window = options.get("sliding_window")
        if window is not None and not causal:
            raise bad_input("sliding_window", window, "must be left out of attention that is not causal")
        sides = (-1 if window is None else window - 1, -1)

        def attend(q, k, v):
            masked = causal and (q.shape[2] > 1 or window is not None)
            return attention(q, k, v, causal=masked, window=sides, scale=scaling, dropout=dropout, **mods)

        spans = _spans(attention_mask, options.get("position_ids"), query.shape[2], key.shape[2], query.shape[0])
        if spans is None:
            return attend(query, key, value).transpose(1, 2), None
        out = query.new_zeros(*query.shape[:3], value.shape[3])
        for row, first, end, keys in spans:
            before = keys - query.shape[2]  # keys that stand before the first query
            asked = slice(max(0, first - before), end - before)
            if attention_mask is not None and not causal:  # queries are of another sequence, or see all of theirs
                asked = slice(0, query.shape[2] if first < end else 0)
            if asked.start < asked.stop:
                row = slice(row, row + 1)
                out[row, :, asked] = attend(query[row, :, asked], *(tensor[row, :, first:end] for tensor in (key, value)))
        return out.transpose(1, 2), None

    AttentionInterface.register(name, implementation)
    AttentionMaskInterface.register(name, _padding)


def _padding(batch_size, q_length, kv_length, *args, attention_mask=None, **options):
    """What the attention is given as its mask: which keys are no padding (B, keys), or None where all are."""
    if attention_mask is None:
        return None
    attention_mask = attention_mask[:, -kv_length:]
    return None if attention_mask.shape[1] == kv_length and attention_mask.all() else attention_mask


def _spans(mask: Any, positions: Any, queries: int, keys: int, batch: int) -> list[tuple[int, int, int, int]] | None:
    """The sequences of a batch: row, first and end key, and the keys of the row that there are; None where each row is one.

    Raises BadInput for a mask that is no padding.
    """
    if mask is not None:
        if mask not in _told:
            _told[mask] = _padded(mask)
        return _told[mask]
    if positions is None or queries != keys or queries == 1:
        return None
    if positions not in _told:
        _told[positions] = _packed(positions, batch)
    return _told[positions]


def _padded(mask: torch.Tensor) -> list[tuple[int, int, int, int]]:
    if mask.dim() != 2:
        raise bad_input("attention_mask", f"a tensor of shape {tuple(mask.shape)}", "must tell padding alone, (B, keys)")
    seen = mask.bool().cpu()
    spans = []
    for row, of_row in enumerate(seen):
        places = of_row.nonzero().flatten().tolist()
        first, end = (places[0], places[-1] + 1) if places else (0, 0)
        if end - first != len(places):
            raise bad_input("attention_mask", f"row {row} with a hole", "must be padded before or behind: a sequence is one piece")
        spans.append((row, first, end, mask.shape[1]))
    return spans


def _packed(positions: torch.Tensor, batch: int) -> list[tuple[int, int, int, int]] | None:
    """Sequences side by side, each of which begins where positions do not go on."""
    told = positions.expand(batch, -1).cpu()
    begins = torch.ones_like(told, dtype=torch.bool)
    begins[:, 1:] = told.diff(dim=1) != 1
    if begins.sum() == batch:
        return None
    spans = []
    for row, of_row in enumerate(begins):
        places = [*of_row.nonzero().flatten().tolist(), told.shape[1]]
        spans += [(row, first, end, told.shape[1]) for first, end in zip(places, places[1:])]
    return spans
