# SPDX-License-Identifier: Apache-2.0
"""What is computed, and nothing about how: shapes, element type, mask, scale, score modifiers, dropout."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import operator
from collections.abc import Iterable
from typing import Any

from . import _native
from .errors import bad_input

#: The fields of a Problem that modify scores; one that is None or False is not there.
SCORE_MODS = ("softcap", "alibi", "learned_sink", "log_bias")

_TYPES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4m3",
    "float8_e5m2": "fp8e5m2",
}


def element_type_of(dtype: object) -> str:
    """The name of an array's or tensor's element type: ``"fp16"`` of numpy.float16 or torch.float16."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]
    if name in _TYPES:
        return _TYPES[name]
    raise bad_input("dtype", name, f"must be one of {', '.join(_TYPES)}")


def require_stored_like(q: Any, k: Any, name: str, array: Any) -> None:
    """Keys hold the type of queries, or fp8e4m3 beside wider ones; values that of keys."""
    if array.dtype == (k if name == "v" else q).dtype or (name == "k" and element_type_of(k.dtype) == "fp8e4m3"):
        return
    allowed = f"must hold {k.dtype} like k" if name == "v" and k.dtype != q.dtype else f"must hold {q.dtype} like q"
    raise bad_input(name, f"an array of {array.dtype}", allowed)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _window_of(window: Any) -> tuple[int, int]:
    try:
        left, right = map(operator.index, window)
    except (TypeError, ValueError):
        raise TypeError(f"window must be two integers, keys to the left and to the right, not {window!r}") from None
    return left, right


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Problem:
    """Attention ``O = dropout(softmax(mask(f(scale * Q K^T)))) V`` on (B, H, N, D) tensors; f: the score modifiers.

    With ``off = seqlen_k - seqlen_q``, query i sees key j when ``j <= i + off`` (causal) and
    ``i + off - L <= j <= i + off + R`` (window = (L, R), -1 for no limit): masks are aligned bottom-right. A row
    without a visible key gives O = 0, LSE = -inf and zero gradients. Keys from ``key_lengths[b]`` on are padding of
    batch entry b: no query sees them, and what k and v hold there is not read. ``mask`` is what else is seen or hidden:
    ``sink:N`` keeps the first N keys in sight when a window has moved on, ``prefix:N`` shows all queries the first N
    keys, ``documents:N,N,...`` are documents side by side, none of which sees another.

    >>> Problem(seqlen_q=4096, heads=32, heads_kv=8, head_dim=128, causal=True)
    Problem(seqlen_q=4096, head_dim=128, heads=32, heads_kv=8, causal=True)

    Raises BadInput, with the field's name, for what cannot be.
    """

    seqlen_q: int  #: queries, 1 ... 2^28
    head_dim: int  #: D, 1 ... 576
    batch: int = 1
    heads: int = 1  #: query heads
    heads_kv: int = None  # type: ignore[assignment]  #: key and value heads, which divide heads; default: heads
    seqlen_k: int = None  # type: ignore[assignment]  #: keys; default: seqlen_q
    dtype: str = "fp16"  #: fp32, fp16, bf16, fp8e4m3 or fp8e5m2; or numpy's or torch's type, or its name
    causal: bool = False
    window: tuple[int, int] = (-1, -1)  #: keys seen left and right of the diagonal
    scale: float | None = None  #: of the scores; default: 1 / sqrt(head_dim)
    dropout: float = 0.0  #: share of the probabilities that is dropped, in [0, 1)
    seed: int = 0  #: of dropout and of random inputs
    key_lengths: tuple[int, ...] = ()  #: one a batch entry; none: no key is padding
    mask: str = ""  #: beside them: "sink:4", "prefix:512", "documents:100,300,57"; `tilescope list masks` has all
    descale_q: float | str = 1.0  #: fp8: what stored queries are multiplied by; or "random", of (batch, key head)
    descale_k: float | str = 1.0
    descale_v: float | str = 1.0
    descale_block: tuple[int, int] | None = None  #: rows of q, and of k and v, that share one; none: all of a head
    softcap: float | None = None  #: scores s become softcap * tanh(s / softcap); 0: they stay
    alibi: bool = False  #: scores lose a slope of their head's for every key from the diagonal
    learned_sink: bool = False  #: each head's softmax has one more term, without a value
    log_bias: float | None = None  #: scores lose log_bias * log(1 + keys from the diagonal)
    head_dim_v: int = None  # type: ignore[assignment]  #: columns of v and the output; default: head_dim
    page_size: int = 0  #: keys of a page, where k and v lie in pages that a table finds (PagedAttention); 0: they do not
    kv_dtype: str = None  # type: ignore[assignment]  #: that k and v are stored in: fp8e4m3; default: dtype
    shared_kv: bool = False  #: v is the first head_dim_v columns of k, as of absorbed multi-head latent attention
    _handle: _native.Problem = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        def put(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        if self.heads_kv is None:
            put("heads_kv", self.heads)
        if self.seqlen_k is None:
            put("seqlen_k", self.seqlen_q)
        if self.head_dim_v is None:
            put("head_dim_v", self.head_dim)
        for field in ("seqlen_q", "head_dim", "head_dim_v", "batch", "heads", "heads_kv", "seqlen_k", "seed", "page_size"):
            try:
                put(field, operator.index(getattr(self, field)))
            except TypeError:
                raise TypeError(f"{field} must be an integer, not {getattr(self, field)!r}") from None
        put("window", _window_of(self.window))
        if not isinstance(self.mask, str):
            told = f"an array of shape {self.mask.shape}" if hasattr(self.mask, "shape") else repr(self.mask)
            raise TypeError(f'mask must be a text such as "sink:4" or "documents:100,300", not {told}')
        if not isinstance(self.dtype, str):
            put("dtype", element_type_of(self.dtype))
        put("dtype", _TYPES.get(self.dtype, self.dtype))
        if self.kv_dtype is None:
            put("kv_dtype", self.dtype)
        if not isinstance(self.kv_dtype, str):
            put("kv_dtype", element_type_of(self.kv_dtype))
        put("kv_dtype", _TYPES.get(self.kv_dtype, self.kv_dtype))
        put("causal", bool(self.causal))
        put("shared_kv", bool(self.shared_kv))
        put("key_lengths", tuple(operator.index(length) for length in self.key_lengths))
        for field in ("descale_q", "descale_k", "descale_v"):
            value = getattr(self, field)
            put(field, value if isinstance(value, str) and not _is_number(value) else float(value))
        if self.descale_block is not None:
            rows_q, rows_k = map(operator.index, self.descale_block)
            put("descale_block", (rows_q, rows_k))
        for field in SCORE_MODS:
            value = getattr(self, field)
            put(field, value if value is None or isinstance(value, bool) else float(value) or None)
        if not 0 <= self.seed < 2**64:
            raise bad_input("seed", self.seed, "must lie in 0 ... 2^64 - 1")
        if self.head_dim_v == 0:
            raise bad_input("head_dim_v", 0, "must lie in 1 ... 576")
        for field in ("seqlen_q", "head_dim", "head_dim_v", "batch", "heads", "heads_kv", "seqlen_k", "page_size"):
            if abs(getattr(self, field)) >= 2**63:
                raise bad_input(field, getattr(self, field), "must be less than 2^63")
        told = {name: str(getattr(self, name)) for name in ("descale_q", "descale_k", "descale_v")}
        fields = {**self._fields(), **told}
        mods = {name: fields.pop(name) for name in SCORE_MODS}
        score_mods = {name: float(value) for name, value in mods.items() if value is not None and value is not False}
        put("_handle", _native.Problem(**fields, score_mods=score_mods))

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}

    def __reduce__(self) -> tuple[Any, ...]:
        return _problem_of, (self._fields(),)

    def __repr__(self) -> str:
        told = []
        for field in filter(lambda field: field.init, dataclasses.fields(self)):
            value = getattr(self, field.name)
            defaults = {"heads_kv": self.heads, "seqlen_k": self.seqlen_q, "head_dim_v": self.head_dim,
                        "kv_dtype": self.dtype}  # fmt: skip
            default = defaults.get(field.name, field.default)
            if value != default:
                told.append(f"{field.name}={json.dumps(value) if isinstance(value, str) else repr(value)}")
        return f"Problem({', '.join(told)})"

    def __str__(self) -> str:
        """One line: ``B1 H32/8 N4096 D128 fp16 causal``."""
        return self._handle.describe()

    @staticmethod
    def preset(name: str) -> Problem:
        """The problem of that name, or of a part that no other name has; ``tilescope.presets()`` lists them.

        >>> str(Problem.preset("llama3-8b"))
        'B1 H32/8 N8192 D128 bf16 causal'
        """
        return _problem_of(json.loads(_native.preset(name)))

    @staticmethod
    def model(name: str, *, tp: int = 1, batch: int = 1, seqlen: int = 8192, decode: bool = False) -> Problem:
        """One layer of a published model on one of `tp` devices, which share the heads: causal, bf16.
        ``tilescope.models()`` lists the names.

        decode : one query a sequence, behind `seqlen` keys, in place of a whole prompt

        >>> str(Problem.model("llama3-70b", tp=8, seqlen=4096))
        'B1 H8/1 N4096 D128 bf16 causal'
        """
        return _problem_of(json.loads(_native.model_layer(name, tp, batch, seqlen, decode)))

    @staticmethod
    def of(q: Any, k: Any, v: Any, *, layout: str = "bhnd", **fields: Any) -> Problem:
        """The problem whose tensors these arrays are: shapes and element type from them, the rest from `fields`.

        q: (B, H, Nq, D); k, v: (B, Hkv, Nk, D), v of any other D too, both of q's type or of fp8e4m3; with ``layout="bnhd"``: (B, Nq, H, D) and (B, Nk, Hkv, D).
        """
        if layout not in ("bhnd", "bnhd"):
            raise bad_input("layout", repr(layout), "must be bhnd or bnhd")
        shapes = {}
        for name, array in (("q", q), ("k", k), ("v", v)):
            if not hasattr(array, "shape") or not hasattr(array, "dtype"):
                raise TypeError(f"{name} must be an array, not {type(array).__name__}")
            shape = tuple(array.shape)
            if len(shape) != 4:
                raise bad_input(name, f"an array of shape {shape}", f"must have four dimensions, {layout}")
            shapes[name] = shape if layout == "bhnd" else (shape[0], shape[2], shape[1], shape[3])
            require_stored_like(q, k, name, array)
        (batch, heads, seqlen_q, head_dim), (_, heads_kv, seqlen_k, _) = shapes["q"], shapes["k"]
        for name in ("k", "v"):
            columns = shapes["v"][3] if name == "v" else head_dim
            if shapes[name] != (batch, heads_kv, seqlen_k, columns):
                raise bad_input(
                    name,
                    f"an array of shape {tuple((k if name == 'k' else v).shape)}",
                    f"must have the batch and head size of q, {batch} and {head_dim}"
                    if name == "k"
                    else f"must have the batch of q, {batch}, and the heads and length of k",
                )
        fields = dict(
            batch=batch,
            heads=heads,
            heads_kv=heads_kv,
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            head_dim=head_dim,
            head_dim_v=shapes["v"][3],
            dtype=element_type_of(q.dtype),
            kv_dtype=element_type_of(k.dtype),
            **fields,
        )
        try:
            hash(tuple(fields.values()))
        except TypeError:  # a list, say
            return Problem(**fields)
        return _remembered(**fields)

    def replace(self, **fields: Any) -> Problem:
        """The same with other fields. ``seqlen`` sets queries and keys; seqlen_k follows seqlen_q, head_dim_v
        head_dim and kv_dtype dtype, where they were equal and are not given, and heads_kv heads, so that the groups of
        query heads keep their size where it divides heads; else each query head has its own. One for all stays one."""
        if "seqlen" in fields:
            fields["seqlen_q"] = fields["seqlen_k"] = fields.pop("seqlen")
        if "heads" in fields:
            heads, group = fields["heads"], self.heads // self.heads_kv
            grouped = heads // group if group > 1 and heads % group == 0 else heads
            fields.setdefault("heads_kv", 1 if group > 1 and self.heads_kv == 1 else grouped)
        if "dtype" in fields and self.kv_dtype == self.dtype:
            fields.setdefault("kv_dtype", fields["dtype"])
        if "head_dim" in fields and self.head_dim_v == self.head_dim:
            fields.setdefault("head_dim_v", fields["head_dim"])
        if "seqlen_q" in fields and self.seqlen_k == self.seqlen_q:
            fields.setdefault("seqlen_k", fields["seqlen_q"])
        return _problem_of({**self._fields(), **fields})

    def sweep(self, **axes: Iterable[Any]) -> list[Problem]:
        """Every combination of the fields' values, the last varying fastest.

        >>> [p.seqlen_q for p in Problem(seqlen_q=1, head_dim=64).sweep(seqlen=[512, 1024])]
        [512, 1024]
        """
        names = list(axes)
        return [self.replace(**dict(zip(names, values))) for values in itertools.product(*axes.values())]


def _problem_of(fields: dict[str, Any]) -> Problem:
    known = {field.name for field in dataclasses.fields(Problem) if field.init}
    for name in fields:
        if name not in known:
            raise TypeError(f"Problem has no field {name!r}")
    return Problem(**fields)


@functools.lru_cache(maxsize=1024, typed=True)
def _remembered(**fields: Any) -> Problem:
    """Calls on arrays ask for the same problem again and again; to check it takes as long as a small kernel."""
    return Problem(**fields)


def problems_of(problems: Problem | Iterable[Problem]) -> list[Problem]:
    """Of an argument `problems`, what it holds."""
    several = [problems] if isinstance(problems, Problem) else list(problems)
    if not several:
        raise bad_input("problems", "[]", "must be a Problem, or several")
    for problem in several:
        if not isinstance(problem, Problem):
            hint = "; Problem.preset(name) is the one of a name" if isinstance(problems, str) else ""
            raise TypeError(f"problems must be of type Problem, not {type(problem).__name__}{hint}")
    return several
