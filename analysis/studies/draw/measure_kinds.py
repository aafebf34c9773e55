# SPDX-License-Identifier: Apache-2.0
"""Which pass of which library a kernel is, by its name."""
import re

KINDS = (
    (r"flash_fwd_kernel", "pytorch:flash2", "forward"),
    (r"flash_fwd_splitkv_kernel", "pytorch:flash2", "forward, keys split"),
    (r"flash_bwd_dq_dk_dv", "pytorch:flash2", "dkdvdq"),
    (r"sdpa_.*fprop", "pytorch:cudnn", "forward"),
    (r"sdpa_.*bprop", "pytorch:cudnn", "dkdvdq"),
    (r"fmha_cutlassF", "pytorch:efficient", "forward"),
    (r"triton_attn_forward", "triton:plain", "forward"),
    (r"triton_attn_dkdv", "triton:plain", "dkdv"),
    (r"triton_attn_dq", "triton:plain", "dq"),
    (r"FlashAttentionForward", "flash-attn:flash4", "forward"),
    (r"FlashAttentionBackwardSm90", "flash-attn:flash4", "dkdvdq"),
)


def kind_of(name):
    """(library, pass), or None."""
    for pattern, library, one in KINDS:
        if re.search(pattern, name):
            return library, one
    return None
