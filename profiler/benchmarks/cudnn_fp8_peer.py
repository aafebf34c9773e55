# SPDX-License-Identifier: Apache-2.0
"""cuDNN's fp8 attention through its Python front end: a graph of one `sdpa_fp8`, forward.

P is scaled by e4m3's largest number before it is rounded, which is the most that softmax needs (cuDNN front end,
docs/operations/Attention.md); other scales are 1. O is left in e4m3 or in fp16, by a peer each.
"""

import contextlib

import cudnn
import torch

MOST_ERROR = 0.1  # of the largest value: O in e4m3 is rounded to three bits


def version():
    return f"cuDNN front end {cudnn.__version__}"


class Fp8Peer:
    """O in `out_dtype`; checked against PyTorch's fp32 attention of the same e4m3 inputs on its first head."""

    takes = ()  # of what wants() names
    LARGEST = 448.0

    def __init__(self, out_dtype):
        self.out_dtype = out_dtype

    def work(self, tensors, request):
        if request["direction"] != "forward" or request["dtype"] != "fp8e4m3":
            raise RuntimeError("e4m3 forward alone")
        if max(request["window"]) >= 0 or (request["causal"] and request["seqlen_q"] != request["seqlen_k"]):
            raise RuntimeError("another mask than this graph has")
        q, k, v = tensors[:3]
        out = torch.empty(q.shape, device="cuda", dtype=self.out_dtype)
        try:
            run = self.graph_of(q, k, v, out, request)
        except Exception as error:  # the front end has errors of its own for what no engine takes
            raise RuntimeError(f"cuDNN: {error}") from error
        run()
        self.require_right(out, q, k, v, request)
        return run

    def graph_of(self, q, k, v, out, request):
        kinds = cudnn.data_type
        graph = cudnn.pygraph(io_data_type=kinds.FP8_E4M3, intermediate_data_type=kinds.FLOAT,
                              compute_data_type=kinds.FLOAT)

        def declare(name, tensor, kind):
            return graph.tensor(name=name, dim=list(tensor.shape), stride=list(tensor.stride()), data_type=kind)

        values = {name: torch.full((1, 1, 1, 1), value, device="cuda") for name, value in
                  {"descale_q": 1.0, "descale_k": 1.0, "descale_v": 1.0, "scale_s": self.LARGEST,
                   "descale_s": 1.0 / self.LARGEST, "scale_o": 1.0}.items()}
        scales = {name: declare(name, value, kinds.FLOAT) for name, value in values.items()}
        inputs = {declare(name, tensor, kinds.FP8_E4M3): tensor for name, tensor in (("q", q), ("k", k), ("v", v))}
        declared = dict(zip("qkv", inputs))
        o, _, _, amax_o = graph.sdpa_fp8(**declared, **scales, generate_stats=False, attn_scale=request["scale"],
                                         **({"use_causal_mask": True} if request["causal"] else {}))
        kind = kinds.FP8_E4M3 if self.out_dtype == torch.float8_e4m3fn else kinds.HALF
        o.set_output(True).set_dim(list(out.shape)).set_stride(list(out.stride())).set_data_type(kind)
        largest_o = torch.zeros((1, 1, 1, 1), device="cuda")
        amax_o.set_output(True).set_dim([1, 1, 1, 1]).set_stride([1, 1, 1, 1]).set_data_type(kinds.FLOAT)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        workspace = torch.empty(max(1, graph.get_workspace_size()), device="cuda", dtype=torch.uint8)
        pack = {**inputs, **{scales[name]: values[name] for name in scales}, o: out, amax_o: largest_o}
        return lambda: graph.execute(pack, workspace)

    def require_right(self, out, q, k, v, request):
        first = [tensor[:1, :1].float() for tensor in (q, k, v)]
        exact = torch.nn.functional.scaled_dot_product_attention(*first, is_causal=request["causal"],
                                                                 scale=request["scale"])
        error = ((out[:1, :1].float() - exact).abs().max() / exact.abs().max()).item()
        if not error <= MOST_ERROR:
            raise RuntimeError(f"wrong by {error:.3g} of the largest value")

    def context(self):
        return contextlib.nullcontext()
