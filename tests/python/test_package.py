# SPDX-License-Identifier: Apache-2.0
"""The package as such: what importing it costs, its types, its errors in other processes."""

import ast
import inspect
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import tilescope as ts
from tilescope import _native, errors

PACKAGE = Path(ts.__file__).parent


def test_importing_it_imports_nothing_heavy(python):
    snippet = "import sys, tilescope; print(*{'numpy', 'pandas', 'torch', 'pytest'} & set(sys.modules))"
    assert python(snippet).split() == []


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_survive_pickling(name):
    kind = getattr(errors, name)
    assert getattr(ts, name) is kind
    arguments = {
        "BadInput": ("a = 1: b", "a", "1", "b"),
        "UnknownName": ("a = 1: b", "a", "1", "b", ("c",)),
        "CountersUnavailable": ("no", "permission"),
    }.get(name, ("a sentence",))
    error = kind(*arguments)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error) == arguments[0] and vars(again) == vars(error)


def test_errors_are_of_the_kinds_that_others_catch():
    assert issubclass(ts.BadInput, ValueError) and issubclass(ts.CheckFailed, AssertionError)
    assert issubclass(ts.OutOfMemory, MemoryError) and issubclass(ts.MissingPackage, ImportError)


def test_an_error_comes_back_from_another_process():
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(ts.BadInput) as caught:
        pool.apply(_bad_problem)
    assert caught.value.field == "head_dim"


def _bad_problem():
    ts.Problem(seqlen_q=4, head_dim=1000)


def test_a_forked_child_computes_after_its_parent_did(python):
    snippet = """
import os, numpy as np, tilescope as ts
q = np.random.default_rng(0).standard_normal((1, 4, 256, 64)).astype(np.float32)
expected = ts.attention(q, q, q)
child = os.fork()
if child == 0:
    same = np.array_equal(ts.attention(q, q, q), expected)
    ts.simulate(ts.Problem(seqlen_q=512, head_dim=64))
    os._exit(0 if same else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert python(snippet, env={**__import__("os").environ, "OMP_NUM_THREADS": "2"}).split() == ["0"]


def test_threads_compute_side_by_side(qkv):
    from concurrent.futures import ThreadPoolExecutor

    q, k, v = qkv()
    expected = ts.attention(q, k, v)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: ts.attention(q, k, v), range(8)):
            np.testing.assert_array_equal(result, expected)


def test_everything_public_is_documented_and_typed():
    for name in ts.__all__:
        thing = getattr(ts, name)
        assert inspect.getdoc(thing), name
        if inspect.isfunction(thing):
            hints = inspect.signature(thing)
            assert hints.return_annotation is not inspect.Signature.empty, name
            assert all(p.annotation is not inspect.Parameter.empty for p in hints.parameters.values()), name
    assert (PACKAGE / "py.typed").exists()


def test_what_takes_arguments_says_what_it_raises():
    silent = []
    for name in ts.__all__:
        thing = getattr(ts, name)
        if inspect.isfunction(thing) and inspect.signature(thing).parameters:
            if not any(word in thing.__doc__ for word in ("Raises", "raises")):
                silent.append(name)
    assert silent == []


def test_the_stub_is_that_of_the_module():
    stub = ast.parse((PACKAGE / "_native.pyi").read_text())
    declared = {node.name: node for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    present = {name for name in vars(_native) if not name.startswith("__")}
    assert set(declared) == present
    for name, node in declared.items():
        if not isinstance(node, ast.FunctionDef):
            continue
        signature = getattr(_native, name).__doc__.splitlines()[0]
        told = [argument.arg for argument in node.args.args]
        assert all(f"{argument}: " in signature for argument in told), (signature, told)
        assert signature.count(": ") == len(told), (signature, told)


def test_examples_in_docstrings():
    import doctest

    from tilescope import problem

    assert doctest.testmod(ts).failed == doctest.testmod(problem).failed == 0


def test_the_module_is_one_for_every_python():
    assert Path(_native.__file__).name == "_native.abi3.so"
    assert "tilescope_torch" not in sys.modules


def test_missing_pandas_is_told(python):
    snippet = """
import sys
sys.modules["pandas"] = None
import tilescope as ts
record = ts.closed_form(ts.Problem(seqlen_q=64, head_dim=64))
assert len(record.rows()) == 1
try:
    record.frame()
except ts.MachineLacks as error:
    print(isinstance(error, ImportError), "tilescope[frame]" in str(error))
"""
    assert python(snippet).split() == ["True", "True"]


def test_a_launch_on_rows_too_far_apart_is_refused_before_a_device_is_asked_for():
    problem = _native.Problem(1, 1, 1, 64, 64, 64, "fp16", False, (-1, -1), None, 0.0, 0)
    far, near = (2**40, 2**40, 2**23), (4096, 4096, 64)
    given = [("q", near), ("k", far), ("v", near), ("out", near), ("lse", (64, 64, 1))]
    with pytest.raises(ts.BadInput, match="row stride of k = 8388608"):
        _native.DeviceLaunch(problem, _native.KernelUse("gpu:flash2-mma", None, None, None, None), False, given)


def test_what_needs_numpy_or_pandas_says_how_to_get_them(python):
    told = python("""
import sys
sys.modules["numpy"] = sys.modules["pandas"] = None
import tilescope as ts
record = ts.closed_form(ts.Problem.preset("small"))
for call in (record.frame, ts.kernels, lambda: ts.attention(1, 2, 3)):
    try:
        call()
    except ts.MissingPackage as lack:
        print(lack)
""")
    for line, words in zip(told.splitlines(), (".rows()", "list kernels", "tilescope[numpy]"), strict=True):
        assert "pip install" in line and words in line
