# SPDX-License-Identifier: Apache-2.0
"""What is asked for: problems, their words, and those that cannot be."""

import pickle

import numpy as np
import pytest
import tilescope as ts
from tilescope import program

PROBLEM = ts.Problem(seqlen_q=512, heads=4, head_dim=64, causal=True)


def test_a_problem_says_what_it_is():
    assert str(PROBLEM) == "B1 H4 N512 D64 fp16 causal"
    assert repr(PROBLEM) == "Problem(seqlen_q=512, head_dim=64, heads=4, causal=True)"
    assert eval(repr(PROBLEM), {"Problem": ts.Problem}) == PROBLEM
    assert pickle.loads(pickle.dumps(PROBLEM)) == PROBLEM and len({PROBLEM, PROBLEM.replace()}) == 1
    llama = ts.Problem.preset("llama3-8b")  # 32 query heads in groups of 4
    assert [llama.replace(heads=heads).heads_kv for heads in (16, 6)] == [4, 6]  # groups, where they divide
    assert llama.replace(heads=16, heads_kv=16).heads_kv == 16
    assert PROBLEM.replace(heads=8, heads_kv=1).replace(heads=12).heads_kv == 1  # of multi-query attention
    assert PROBLEM.replace(heads=8).heads_kv == 8 and PROBLEM.replace(seqlen=64).seqlen_k == 64
    swept = PROBLEM.sweep(seqlen=[512, 1024], causal=[False, True])
    assert [(p.seqlen_k, p.causal) for p in swept] == [(512, False), (512, True), (1024, False), (1024, True)]
    assert ts.Problem.preset("llama3-8b").heads_kv == 8


def test_an_element_type_may_be_numpys():
    for dtype in (np.float32, np.dtype("float32"), "float32", "fp32"):
        assert PROBLEM.replace(dtype=dtype).dtype == "fp32"
    with pytest.raises(ts.BadInput, match="float64"):
        PROBLEM.replace(dtype=np.float64)


def test_a_problem_that_cannot_be():
    with pytest.raises(ts.BadInput) as caught:
        ts.Problem(seqlen_q=512, head_dim=64, heads=4, heads_kv=3)
    assert (caught.value.field, caught.value.value, caught.value.allowed) == ("heads_kv", "3", "must divide heads = 4")
    assert isinstance(caught.value, ValueError)
    with pytest.raises(TypeError, match="heads must be an integer"):
        ts.Problem(seqlen_q=512, head_dim=64, heads=4.0)
    with pytest.raises(TypeError, match="seqlen_k2"):
        PROBLEM.replace(seqlen_k2=3)
    for window in (5, (1,), "3,0", (0.5, 1)):
        with pytest.raises(TypeError, match="window must be two integers"):
            PROBLEM.replace(window=window)
    with pytest.raises(ts.UnknownName) as caught:
        ts.Problem.preset("llama3-8B")
    assert "llama3-8b" in caught.value.nearest
    for field, value in {"seed": -1, "seqlen_q": 2**70, "dropout": 1.0, "dtype": "fp12", "window": (-2, 0)}.items():
        with pytest.raises(ts.BadInput) as caught:
            PROBLEM.replace(**{field: value})
        assert caught.value.field == field


def test_a_models_layer_and_a_part_of_a_presets_name():
    layer = ts.Problem.model("llama3-70b", tp=8, seqlen=4096)
    assert str(layer) == "B1 H8/1 N4096 D128 bf16 causal"
    decoded = ts.Problem.model("llama3-70b", tp=8, batch=4, seqlen=4096, decode=True)
    assert (decoded.batch, decoded.seqlen_q, decoded.seqlen_k) == (4, 1, 4096)
    assert ts.Problem.preset("llama") == ts.Problem.preset("llama3-8b")
    with pytest.raises(ts.BadInput, match="llama3-70b"):
        ts.Problem.model("llama3-71b")
    with pytest.raises(ts.BadInput, match="tp"):
        ts.Problem.model("llama3-70b", tp=3)


def test_the_words_of_a_problem_mean_the_problem():
    problem = PROBLEM.replace(
        heads_kv=2, seqlen_k=640, window=(3, 0), scale=0.3, dropout=0.1, seed=4, key_lengths=[9], mask="sink:4",
        page_size=16, head_dim_v=32, softcap=20, alibi=True, kv_dtype="fp8e4m3", descale_k=0.5,
    )  # fmt: skip
    words = program.words_of(problem)
    record = program.run_program("simulate", "--closed-form", "--kernel", "cpu:flash2", *words)
    assert record.json["runs"][0] == ts.closed_form(problem, "cpu:flash2").json["runs"][0]


def test_descales_are_a_problems():
    problem = PROBLEM.replace(dtype="fp8e4m3", descale_q=0.5, descale_k="random", descale_block=(128, 128))
    assert str(problem).endswith("descales q=0.5 k=random of 128x128")
    assert pickle.loads(pickle.dumps(problem)) == problem
    record = program.run_program("simulate", "--closed-form", "--kernel", "cpu:flash2", *program.words_of(problem))
    assert record.json["runs"][0] == ts.closed_form(problem, "cpu:flash2").json["runs"][0]
    assert list(record.frame()["descale_k"]) == ["random"]
    with pytest.raises(ts.BadInput) as caught:
        PROBLEM.replace(descale_v=2)
    assert caught.value.field == "descale_v"
