# SPDX-License-Identifier: Apache-2.0
# One attention problem, forward and backward, by JAX: XLA's own products, cuDNN's kernel and Pallas's, which is compiled by
# Triton. Takes the options that `tilescope explain` takes; tensors are (B, N, H, D).
import argparse
import functools
import math

import jax
import jax.numpy as jnp

options = argparse.ArgumentParser(description="Attention by JAX, forward and backward.")
for name, default in (("batch", 1), ("heads", 16), ("heads-kv", None), ("seqlen", 4096), ("head-dim", 128)):
    options.add_argument("--" + name, type=int, default=default)
options.add_argument("--dtype", choices=("fp16", "bf16"), default="fp16")
options.add_argument("--causal", action="store_true")
problem = options.parse_args()
heads_kv = problem.heads_kv or problem.heads
dtype = {"fp16": jnp.float16, "bf16": jnp.bfloat16}[problem.dtype]
q, k, v, dout = (jax.random.normal(jax.random.key(seed), (problem.batch, problem.seqlen, heads, problem.head_dim), dtype)
                 for seed, heads in enumerate((problem.heads, heads_kv, heads_kv, problem.heads)))


def pallas(q, k, v):
    from jax.experimental.pallas.ops.gpu.attention import mha

    return mha(q, k, v, None, sm_scale=1 / math.sqrt(problem.head_dim), causal=problem.causal)


def both_ways(attention, q, k, v, dout):
    out, backward = jax.vjp(attention, q, k, v)
    return out, *backward(dout)


ways = {name: functools.partial(jax.nn.dot_product_attention, is_causal=problem.causal, implementation=name)
        for name in ("cudnn", "xla")}
expected = None
for name, attention in (ways | {"pallas": pallas}).items():
    try:
        results = jax.block_until_ready(jax.jit(functools.partial(both_ways, attention))(q, k, v, dout))
    except Exception as error:  # a backend's own
        print(f"{name} refused: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:150]}")
        continue
    expected = expected or results
    for tensor, result, reference in zip(("out", "dq", "dk", "dv"), results, expected):
        error = jnp.abs(result.astype(jnp.float32) - reference.astype(jnp.float32)).max()
        print(f"{name}, {tensor}: largest difference {error:.2e}")
