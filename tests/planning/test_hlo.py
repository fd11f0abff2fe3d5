"""What is read in the text of a compiled program."""

# ruff: noqa: E501 (the compiler's lines are long)

from importlib.metadata import version

import jax
import jax.numpy as jnp

from replicax._src._jax_cache import without_cache
from replicax._src.devices import unsuited_libtpu
from replicax._src.planning._hlo import HloProgram

TEXT = """\
HloModule jit_step, num_partitions=4

FileNames
1 "/home/me/train.py"
2 "/venv/lib/site-packages/jax/_src/numpy.py"

FunctionNames
1 "loss_fn"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=1 end_column=2}
2 {file_name_id=2 function_name_id=1 line=99 end_line=99 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}


%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%body (state: (s32[], f32[256])) -> (s32[], f32[256]) {
  %state = (s32[], f32[256]{0}) parameter(0)
  %part = f32[64]{0} get-tuple-element(%state), index=1
  %whole = f32[256]{0} all-gather(%part), replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %out = (s32[], f32[256]{0}) tuple(%state, %whole)
}

%async (p: f32[64]) -> f32[256] {
  %p = f32[64]{0} parameter(0)
  ROOT %again = f32[256]{0} all-gather(%p), replica_groups={{0,1,2,3}}, frontend_attributes={chain_id="0"}
}

ENTRY %main (x: bf16[8,128]) -> f32[256] {
  %x = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  %part.1 = f32[64]{0} custom-call(%x)
  %first = f32[256]{0} fusion(%part.1), kind=kCustom, calls=%async
  %second = f32[256]{0} fusion(%part.1), kind=kCustom, calls=%async
  %g = f32[1024]{0} dot(%x, %x), metadata={op_name="jit(step)/dot_general" stack_frame_id=2}
  %both = (f32[1024]{0}, f32[256]{0}) all-reduce(%g, %first), replica_groups={{0,1},{2,3}}, to_apply=%add
  %near = f32[4096]{0:T(1024)S(1)} copy(%x)
  %mine = f32[64]{0} reduce-scatter(%second), replica_groups=[2,2]<=[2,2]T(1,0), to_apply=%add
  %loop = (s32[], f32[256]{0}) while(%x), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"12"}}
  ROOT %end = f32[256]{0} get-tuple-element(%loop), index=1
}
"""


def test_collectives_with_their_bytes_groups_and_times():
    found = {
        (each.kind, each.bytes, each.times): each.groups for each in HloProgram(TEXT).collectives()
    }
    assert found == {
        ("all-reduce", 4 * (1024 + 256), 1): ((0, 1), (2, 3)),
        ("reduce-scatter", 4 * 256, 1): ((0, 2), (1, 3)),
        ("all-gather", 4 * 256, 12): ((0, 1, 2, 3),),
        ("all-gather", 4 * 256, 1): ((0, 1, 2, 3),),  # written twice, and one
    }


def test_the_largest_tensors_with_the_users_line():
    first, *rest = HloProgram(TEXT).largest(3)
    assert (first.shape, first.bytes) == ("f32[1024]", 4096)
    assert first.operation == "dot_general" and first.line == "/home/me/train.py:12"
    assert all(each.bytes <= 4096 for each in rest)


def test_lines_of_a_program_that_jax_has_just_compiled():
    """An operation deep in a library has the line of the user's program that led there."""

    def loss(x):
        return jnp.linalg.norm(jax.nn.softmax(x @ x.T))

    with without_cache():  # which may have the lines of an earlier edition of this file
        compiled = jax.jit(jax.grad(loss)).lower(jnp.ones((64, 32))).compile()
    text = compiled.as_text()
    assert text is not None
    found = [each for each in HloProgram(text).largest(5) if each.line]
    assert found and all(each.line.startswith(f"{__file__}:") for each in found)
    numbers = {int(each.line.rpartition(":")[2]) for each in found}
    first = loss.__code__.co_firstlineno
    assert first + 1 in numbers


def test_versions_that_do_not_suit_each_other_are_named():
    error = unsuited_libtpu("v6e:2x2", RuntimeError("INTERNAL: RET_CHECK failure\nmore"))
    text = str(error)
    assert "libtpu" in text and f"jaxlib {version('jaxlib')}" in text
    assert f'"jax[tpu]=={jax.__version__}"' in text and "RET_CHECK" in text and "more" not in text
