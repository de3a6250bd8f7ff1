"""Eight numbers at a time, for compiled loops: what is written is what is computed, in that order.

A compiler left to find the vectors itself must be allowed to reorder sums, and how it does so depends on the loop
around them. Here nothing is reordered: a row has the same bits in whichever loop, tile or company it is met.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from userdp.losses.base import Floats

WIDTH = 8  # the widest registers there are; processors with narrower ones take several

_DOUBLE = ir.DoubleType()
_INDEX = ir.IntType(64)
_EIGHT, _LANES, _MASK = (ir.VectorType(kind, WIDTH) for kind in (_DOUBLE, _INDEX, ir.IntType(1)))


class _Eight(types.Type):  # type: ignore[misc]
    """Eight float64 numbers."""

    def __init__(self) -> None:
        super().__init__(name="Eight")


@register_model(_Eight)
class _EightModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _EIGHT)


eight = _Eight()


def aligned(*shape: int) -> Floats:
    """Zeros that start at a cache line: a vector that straddles two of them takes twice as long."""
    size = math.prod(shape)
    whole = np.zeros(size + WIDTH)
    start = -whole.ctypes.data % 64 // 8
    return whole[start : start + size].reshape(shape)


def padded(values: Floats, columns: int) -> Floats:
    """A copy with zeros up to so many columns."""
    out = aligned(*values.shape[:-1], columns)
    out[..., : values.shape[-1]] = values
    return out


def round_up(columns: int, unit: int = WIDTH) -> int:
    """The next multiple.

    >>> round_up(50), round_up(64)
    (56, 64)
    """
    return -(-columns // unit) * unit


def _pointer(context: Any, builder: Any, kind: Any, element: Any, array: Any, at: Any) -> Any:
    start = builder.gep(context.make_array(kind)(context, builder, array).data, [at])
    return builder.bitcast(start, ir.VectorType(element, WIDTH).as_pointer())


def _all(builder: Any, value: Any, kind: Any) -> Any:
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH))


def _first(builder: Any, count: Any) -> Any:
    return builder.icmp_signed("<", ir.Constant(_LANES, list(range(WIDTH))), _all(builder, count, _LANES))


def _align(element: Any) -> Any:
    return ir.Constant(ir.IntType(32), 4 if element == ir.FloatType() else 8)


@intrinsic  # type: ignore[untyped-decorator]
def load(typing: Any, array: Any, at: Any) -> Any:
    """Eight numbers of a contiguous array from the flat position ``at`` on."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        element = context.get_data_type(array.dtype)
        found = builder.load(_pointer(context, builder, array, element, *arguments), align=_align(element).constant)
        return found if element == _DOUBLE else builder.fpext(found, _EIGHT)

    return eight(array, types.intp), code


@intrinsic  # type: ignore[untyped-decorator]
def load_part(typing: Any, array: Any, at: Any, count: Any) -> Any:
    """The first ``count`` of them, zeros behind: nothing else is read."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        element = context.get_data_type(array.dtype)
        pointer = _pointer(context, builder, array, element, *arguments[:2])
        kind = ir.VectorType(element, WIDTH)
        name = f"llvm.masked.load.v{WIDTH}{'f64' if element == _DOUBLE else 'f32'}.p0"
        function = builder.module.declare_intrinsic(
            name, fnty=ir.FunctionType(kind, [pointer.type, ir.IntType(32), _MASK, kind])
        )
        mask, nothing = _first(builder, arguments[2]), ir.Constant(kind, None)
        found = builder.call(function, [pointer, _align(element), mask, nothing])
        return found if element == _DOUBLE else builder.fpext(found, _EIGHT)

    return eight(array, types.intp, types.intp), code


@intrinsic  # type: ignore[untyped-decorator]
def store(typing: Any, array: Any, at: Any, vector: Any) -> Any:
    """Write eight numbers to a contiguous array of float64."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, array, _DOUBLE, *arguments[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, eight), code


@intrinsic  # type: ignore[untyped-decorator]
def spread(typing: Any, number: Any) -> Any:
    """One number eight times."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _all(builder, arguments[0], _EIGHT)

    return eight(types.float64), code


@intrinsic  # type: ignore[untyped-decorator]
def spread_from(typing: Any, array: Any, at: Any) -> Any:
    """The number at the flat position ``at`` of a contiguous array of float64, eight times."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.gep(context.make_array(array)(context, builder, arguments[0]).data, [arguments[1]])
        return _all(builder, builder.load(pointer), _EIGHT)

    return eight(array, types.intp), code


def _arithmetic(name: str) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, name)(*arguments)

    return eight(eight, eight), code


@intrinsic  # type: ignore[untyped-decorator]
def plus(typing: Any, a: Any, b: Any) -> Any:
    """a + b, number by number, as all that follow."""
    return _arithmetic("fadd")


@intrinsic  # type: ignore[untyped-decorator]
def minus(typing: Any, a: Any, b: Any) -> Any:
    """a − b."""
    return _arithmetic("fsub")


@intrinsic  # type: ignore[untyped-decorator]
def times(typing: Any, a: Any, b: Any) -> Any:
    """a·b."""
    return _arithmetic("fmul")


@intrinsic  # type: ignore[untyped-decorator]
def divided(typing: Any, a: Any, b: Any) -> Any:
    """a/b."""
    return _arithmetic("fdiv")


@intrinsic  # type: ignore[untyped-decorator]
def plus_product(typing: Any, sum: Any, a: Any, b: Any) -> Any:
    """sum + a·b, rounded once where the processor can."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_EIGHT, [_EIGHT] * 3)
        function = builder.module.declare_intrinsic(f"llvm.fmuladd.v{WIDTH}f64", fnty=kind)
        return builder.call(function, [arguments[1], arguments[2], arguments[0]])

    return eight(eight, eight, eight), code


@intrinsic  # type: ignore[untyped-decorator]
def between(typing: Any, a: Any, low: Any, high: Any) -> Any:
    """min(max(a, low), high)."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, low, high = arguments
        value = builder.select(builder.fcmp_ordered(">", low, value), low, value)
        return builder.select(builder.fcmp_ordered("<", high, value), high, value)

    return eight(eight, eight, eight), code


@intrinsic  # type: ignore[untyped-decorator]
def side_of(typing: Any, a: Any, border: Any) -> Any:
    """1 where a > border, else −1."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        above, below = (ir.Constant(_EIGHT, [side] * WIDTH) for side in (1.0, -1.0))
        return builder.select(builder.fcmp_ordered(">", *arguments), above, below)

    return eight(eight, eight), code


@intrinsic  # type: ignore[untyped-decorator]
def times_power(typing: Any, a: Any, exponent: Any) -> Any:
    """a·2^exponent, for normal numbers and whole exponents that keep them so."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        exponent = builder.shl(builder.fptosi(arguments[1], _LANES), ir.Constant(_LANES, [52] * WIDTH))
        return builder.bitcast(builder.add(builder.bitcast(arguments[0], _LANES), exponent), _EIGHT)

    return eight(eight, eight), code


@intrinsic  # type: ignore[untyped-decorator]
def totals(typing: Any, array: Any, at: Any) -> Any:
    """Sums of eight vectors that follow one another: of neighbours, of neighbouring pairs, then of the halves."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = _pointer(context, builder, array, _DOUBLE, *arguments)
        vectors = [builder.load(builder.gep(start, [ir.Constant(_INDEX, i)]), align=8) for i in range(WIDTH)]
        for step in (1, 2, 4):
            left = [i - step + WIDTH if i & step else i for i in range(WIDTH)]
            right = [i + step for i in left]
            vectors = [_pairs(builder, a, b, left, right) for a, b in zip(vectors[::2], vectors[1::2])]
        return vectors[0]

    return eight(array, types.intp), code


@intrinsic  # type: ignore[untyped-decorator]
def total(typing: Any, a: Any) -> Any:
    """The sum of the eight, likewise."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = arguments[0]
        for places in ([0, 2, 4, 6], [0, 2], [0]):
            value = _pairs(builder, value, value, places, [place + 1 for place in places])
        return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    return types.float64(eight), code


def _pairs(builder: Any, a: Any, b: Any, left: list[int], right: list[int]) -> Any:
    """Sums of the numbers of a and b that stand at these places, b's counted behind a's."""
    kind = ir.VectorType(ir.IntType(32), len(left))
    return builder.fadd(*(builder.shuffle_vector(a, b, ir.Constant(kind, places)) for places in (left, right)))
