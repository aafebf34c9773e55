# SPDX-License-Identifier: Apache-2.0
"""The problems that torch is asked to compute while something is counted, so that nobody has to type them."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from .errors import bad_input
from .problem import Problem


class Captured(TorchDispatchMode):
    """In a with block: takes down what `scaled_dot_product_attention` computes, whoever calls it and by whichever back
    end. Results are as without it."""

    def __init__(self) -> None:
        super().__init__()
        self._problems: dict[Problem, None] = {}  # each once, in order
        self._unknown: Exception | None = None

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        if "scaled_dot_product" in name and "backward" not in name:
            names = (argument.name for argument in function._schema.arguments)
            self._take_down(**dict(zip(names, args)), **(kwargs or {}))
        return function(*args, **(kwargs or {}))

    def _take_down(self, query: Any, key: Any, value: Any, is_causal: bool = False, **others: Any) -> None:
        try:
            for mask in ("attn_mask", "attn_bias"):
                if others.get(mask) is not None:
                    raise bad_input(mask, "a tensor", "must be typed as a mask of the problem: it is not looked at")
            if is_causal and query.shape[-2] != key.shape[-2]:
                raise bad_input("is_causal", "with unequal lengths", "must be typed: torch aligns the mask top-left")
            self._problems[Problem.of(query, key, value, causal=is_causal)] = None
        except (TypeError, ValueError) as unknown:
            self._unknown = unknown

    @property
    def problem(self) -> Problem:
        """The one problem of the block.

        :raises BadInput: where there was none, or another, or one that no kernel here computes
        """
        if self._unknown is not None:
            raise self._unknown
        if len(self._problems) != 1:
            told = " and ".join(map(str, self._problems)) or "no call of scaled_dot_product_attention"
            raise bad_input("problem", told, "must be given where the block does not compute one alone")
        return next(iter(self._problems))
