# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's kernels for batches that are decoded, with keys and values in pages in an order by chance."""

import contextlib
import itertools

import flashinfer
import torch


def version():
    return flashinfer.__version__


class DecodePeer:
    """BatchDecodeWithPagedKVCacheWrapper, planned before it is timed; checked against PyTorch on its first entry."""

    takes = ("lengths of batch entries", "keys in fp8")
    OWN_PAGE = 16  # keys, where a problem has no pages: it reads nothing else
    WORKSPACE_BYTES = 384 << 20
    MOST_ERROR = 0.02  # of the largest value

    def __init__(self):
        self.workspace = None

    def work(self, tensors, request):
        rows, group = request["seqlen_q"], request["heads"] // request["heads_kv"]
        if request["direction"] != "forward" or max(request["window"]) >= 0:
            raise RuntimeError("decoding is timed forward alone, without windows")
        if rows > 1 and not request["causal"]:
            raise RuntimeError("its queries see none behind them")
        lengths = request["key_lengths"] or [request["seqlen_k"]] * request["batch"]
        if min(lengths) < rows:
            raise RuntimeError("fewer keys than queries")
        if self.workspace is None:
            self.workspace = torch.zeros(self.WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
        q = tensors[0].detach().transpose(1, 2).reshape(-1, request["heads"], request["head_dim"])
        pages = Pages(lengths, request["page_size"] or self.OWN_PAGE, request, q.dtype)
        try:  # compiles what was not compiled before
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                self.workspace, "HND", use_tensor_cores=group > 1 or rows > 1, backend="fa2")
            wrapper.plan(pages.ends, pages.order, pages.last, request["heads"], request["heads_kv"],
                         request["head_dim"], pages.size, q_data_type=q.dtype, kv_data_type=pages.pools[0].dtype,
                         sm_scale=request["scale"], **({"q_len_per_req": rows} if rows > 1 else {}))
            out = wrapper.run(q, pages.pools)
        except Exception as error:
            raise RuntimeError(f"FlashInfer: {error}") from error
        self.require_right(out[:rows], q[:rows], pages, lengths[0], request["scale"])
        return lambda: wrapper.run(q, pages.pools)

    def require_right(self, out, q, pages, length, scale):
        k, v = (tensor.unsqueeze(0).float() for tensor in pages.of_first_entry(length))
        rows = q.shape[0]
        seen = torch.ones(rows, length, dtype=torch.bool, device="cuda").tril(length - rows)
        exact = torch.nn.functional.scaled_dot_product_attention(
            q.float().transpose(0, 1).unsqueeze(0), k, v, attn_mask=seen, scale=scale, enable_gqa=True)
        exact = exact[0].transpose(0, 1)
        error = ((out.float() - exact).abs().max() / exact.abs().max()).item()
        if not error <= self.MOST_ERROR:
            raise RuntimeError(f"wrong by {error:.3g} of the largest value")

    def context(self):
        return contextlib.nullcontext()


class Pages:
    """Keys and values N(0, 1) in pools (pages, heads, keys of a page, head_dim), and which pages an entry has."""

    def __init__(self, lengths, size, request, dtype):
        counts = [-(-length // size) for length in lengths]
        self.size, self.first_count = size, counts[0]
        self.ends = torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)
        self.last = torch.tensor([(length - 1) % size + 1 for length in lengths], dtype=torch.int32)
        self.order = torch.randperm(sum(counts), device="cuda").to(torch.int32)
        shape = (sum(counts), request["heads_kv"], size, request["head_dim"])
        stored = torch.float8_e4m3fn if request["kv_dtype"] == "fp8e4m3" else dtype
        self.pools = tuple(torch.randn(shape, device="cuda", dtype=dtype).to(stored) for _ in "kv")

    def of_first_entry(self, length):
        """K and V of the first batch entry, (heads, keys, head_dim)."""
        own = self.order[:self.first_count].long()
        return (pool.view(torch.uint8)[own].view(pool.dtype).transpose(0, 1).flatten(1, 2)[:, :length] for pool in self.pools)
