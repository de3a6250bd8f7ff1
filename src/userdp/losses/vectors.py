"""Several numbers at a time, for compiled loops: what is written is what is computed, in that order.

A compiler left to find the vectors itself must be allowed to reorder sums, and how it does so depends on the loop
around them. Here nothing is reordered: a row has the same bits in whichever loop, tile or company it is met.

Sums over users take eight float64; gradients of phases take sixteen numbers of the precision of the rows.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

from userdp.data.blocks import Rows

WIDTH = 8  # float64 in the widest registers there are; processors with narrower ones take several
SIXTEEN = 2 * WIDTH  # float32 in such a register; as many float64 take two

_DOUBLE, _SINGLE = ir.DoubleType(), ir.FloatType()
_INDEX, _PLACE = ir.IntType(64), ir.IntType(32)


class _Lanes(types.Type):  # type: ignore[misc]
    """So many numbers of one kind."""

    def __init__(self, element: Any, count: int) -> None:
        self.element, self.count, self.vector = element, count, ir.VectorType(element, count)
        super().__init__(name=f"Lanes({element} x {count})")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.vector)


eight = _Lanes(_DOUBLE, WIDTH)
singles = _Lanes(_SINGLE, SIXTEEN)
doubles = _Lanes(_DOUBLE, SIXTEEN)


def aligned(*shape: int, kind: type = np.float64) -> NDArray[Any]:
    """Zeros that start at a cache line: a vector that straddles two of them takes twice as long."""
    size, item = math.prod(shape), np.dtype(kind).itemsize
    whole: NDArray[Any] = np.zeros(size + 64 // item, kind)
    start = -whole.ctypes.data % 64 // item
    return whole[start : start + size].reshape(shape)


def padded(values: Rows, columns: int, kind: type = np.float64) -> NDArray[Any]:
    """A copy with zeros up to so many columns."""
    out = aligned(*values.shape[:-1], columns, kind=kind)
    out[..., : values.shape[-1]] = values
    return out


def round_up(columns: int, unit: int = WIDTH) -> int:
    """The next multiple.

    >>> round_up(50), round_up(64)
    (56, 64)
    """
    return -(-columns // unit) * unit


def _sixteen(array: Any) -> Any:
    """Sixteen numbers of the array's kind."""
    return singles if array.dtype == types.float32 else doubles


def _pointer(context: Any, builder: Any, kind: Any, lanes: Any, array: Any, at: Any) -> Any:
    start = builder.gep(context.make_array(kind)(context, builder, array).data, [at])
    return builder.bitcast(start, lanes.vector.as_pointer())


def _all(builder: Any, value: Any, kind: Any) -> Any:
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_PLACE, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_PLACE, kind.count), [0] * kind.count))


def _align(lanes: Any) -> int:
    return 4 if lanes.element == _SINGLE else 8


def _loaded(lanes: Any, array: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, array, lanes, *arguments), align=_align(lanes))

    return lanes(array, types.intp), code


def _loaded_part(lanes: Any, array: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, array, lanes, *arguments[:2])
        numbers = ir.VectorType(_PLACE, lanes.count)
        count = _all(builder, builder.trunc(arguments[2], _PLACE), numbers)
        mask = builder.icmp_signed("<", ir.Constant(numbers, list(range(lanes.count))), count)
        name = f"llvm.masked.load.{_name(lanes)}.p0"
        kind = ir.FunctionType(lanes.vector, [pointer.type, _PLACE, mask.type, lanes.vector])
        function = builder.module.declare_intrinsic(name, fnty=kind)
        nothing = ir.Constant(lanes.vector, None)
        return builder.call(function, [pointer, ir.Constant(_PLACE, _align(lanes)), mask, nothing])

    return lanes(array, types.intp, types.intp), code


def _name(lanes: Any) -> str:
    return f"v{lanes.count}{'f32' if lanes.element == _SINGLE else 'f64'}"


@intrinsic  # type: ignore[untyped-decorator]
def load(typing: Any, array: Any, at: Any) -> Any:
    """Eight numbers of a contiguous array of float64 from the flat position ``at`` on."""
    return _loaded(eight, array)


@intrinsic  # type: ignore[untyped-decorator]
def load_part(typing: Any, array: Any, at: Any, count: Any) -> Any:
    """The first ``count`` of them, zeros behind: nothing else is read."""
    return _loaded_part(eight, array)


@intrinsic  # type: ignore[untyped-decorator]
def load_sixteen(typing: Any, array: Any, at: Any) -> Any:
    """Sixteen numbers of a contiguous array, whether float32 or float64."""
    return _loaded(_sixteen(array), array)


@intrinsic  # type: ignore[untyped-decorator]
def load_sixteen_part(typing: Any, array: Any, at: Any, count: Any) -> Any:
    """The first ``count`` of them, zeros behind: nothing else is read."""
    return _loaded_part(_sixteen(array), array)


@intrinsic  # type: ignore[untyped-decorator]
def fetch(typing: Any, array: Any, at: Any) -> Any:
    """Ask memory for sixteen numbers from the position ``at`` on, to be read soon; behind the end that does no harm.

    They go to the second cache: the first one keeps no more requests open than half of the memory's speed needs.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), _PLACE, _PLACE, _PLACE])
        function = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=kind)
        start = builder.gep(context.make_array(array)(context, builder, arguments[0]).data, [arguments[1]])
        start = builder.bitcast(start, ir.IntType(8).as_pointer())
        for line in range(0, SIXTEEN * array.dtype.bitwidth // 8, 64):
            settings = (ir.Constant(_PLACE, setting) for setting in (0, 2, 1))  # to read, but for the first cache, data
            builder.call(function, [builder.gep(start, [ir.Constant(_INDEX, line)]), *settings])
        return context.get_dummy_value()

    return types.void(array, types.intp), code


@lru_cache(maxsize=1)
def wide_registers() -> bool:
    """Whether kernels are compiled for 32 registers of 64 bytes."""
    return _wide_registers(cpu_target.target_context)


def _wide_registers(context: Any) -> bool:
    return "+avx512f" in context.codegen().magic_tuple()[2]


@intrinsic  # type: ignore[untyped-decorator]
def at_once(typing: Any, array: Any) -> Any:
    """How many vectors of sixteen a loop should take at once, so that six constants of each stay in registers: 4 of
    float32 and 2 of float64 where 32 registers hold 64 bytes, else 1. Known when compiling: other branches vanish.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(_INDEX, (4 if array.dtype == types.float32 else 2) if _wide_registers(context) else 1)

    return types.intp(array), code


@intrinsic  # type: ignore[untyped-decorator]
def store(typing: Any, array: Any, at: Any, vector: Any) -> Any:
    """Write numbers to a contiguous array of their kind."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, array, vector, *arguments[:2]), align=_align(vector))
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), code


def _everywhere(lanes: Any, array: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.gep(context.make_array(array)(context, builder, arguments[0]).data, [arguments[1]])
        return _all(builder, builder.load(pointer), lanes.vector)

    return lanes(array, types.intp), code


@intrinsic  # type: ignore[untyped-decorator]
def spread(typing: Any, number: Any) -> Any:
    """One number eight times."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _all(builder, arguments[0], eight.vector)

    return eight(types.float64), code


@intrinsic  # type: ignore[untyped-decorator]
def spread_from(typing: Any, array: Any, at: Any) -> Any:
    """The number at the flat position ``at`` of a contiguous array of float64, eight times."""
    return _everywhere(eight, array)


@intrinsic  # type: ignore[untyped-decorator]
def sixteen_from(typing: Any, array: Any, at: Any) -> Any:
    """The number at the flat position ``at`` of a contiguous array, sixteen times."""
    return _everywhere(_sixteen(array), array)


@intrinsic  # type: ignore[untyped-decorator]
def sixteen(typing: Any, array: Any, number: Any) -> Any:
    """A float64 sixteen times, in the precision of the array."""
    lanes = _sixteen(array)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = arguments[1] if lanes.element == _DOUBLE else builder.fptrunc(arguments[1], _SINGLE)
        return _all(builder, value, lanes.vector)

    return lanes(array, types.float64), code


@intrinsic  # type: ignore[untyped-decorator]
def rounded_like(typing: Any, a: Any, b: Any) -> Any:
    """Sixteen float64, which a float32 can hold, in the precision of b."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return arguments[0] if b.element == _DOUBLE else builder.fptrunc(arguments[0], b.vector)

    return b(a, b), code


def _half(lanes: Any, start: int) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = ir.Constant(ir.VectorType(_PLACE, WIDTH), list(range(start, start + WIDTH)))
        half = builder.shuffle_vector(arguments[0], arguments[0], places)
        return half if lanes.element == _DOUBLE else builder.fpext(half, eight.vector)

    return eight(lanes), code


@intrinsic  # type: ignore[untyped-decorator]
def first_half(typing: Any, a: Any) -> Any:
    """The first eight of sixteen numbers, as float64."""
    return _half(a, 0)


@intrinsic  # type: ignore[untyped-decorator]
def second_half(typing: Any, a: Any) -> Any:
    """The other eight."""
    return _half(a, WIDTH)


def _arithmetic(name: str, lanes: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, name)(*arguments)

    return lanes(lanes, lanes), code


@intrinsic  # type: ignore[untyped-decorator]
def plus(typing: Any, a: Any, b: Any) -> Any:
    """a + b, number by number, as all that follow."""
    return _arithmetic("fadd", a)


@intrinsic  # type: ignore[untyped-decorator]
def minus(typing: Any, a: Any, b: Any) -> Any:
    """a − b."""
    return _arithmetic("fsub", a)


@intrinsic  # type: ignore[untyped-decorator]
def times(typing: Any, a: Any, b: Any) -> Any:
    """a·b."""
    return _arithmetic("fmul", a)


@intrinsic  # type: ignore[untyped-decorator]
def divided(typing: Any, a: Any, b: Any) -> Any:
    """a/b."""
    return _arithmetic("fdiv", a)


@intrinsic  # type: ignore[untyped-decorator]
def plus_product(typing: Any, sum: Any, a: Any, b: Any) -> Any:
    """sum + a·b, rounded once where the processor can."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _plus_product(builder, sum, *arguments)

    return sum(sum, sum, sum), code


def _plus_product(builder: Any, lanes: Any, sum: Any, a: Any, b: Any) -> Any:
    kind = ir.FunctionType(lanes.vector, [lanes.vector] * 3)
    return builder.call(builder.module.declare_intrinsic(f"llvm.fmuladd.{_name(lanes)}", fnty=kind), [a, b, sum])


@intrinsic  # type: ignore[untyped-decorator]
def between(typing: Any, a: Any, low: Any, high: Any) -> Any:
    """min(max(a, low), high)."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _between(builder, *arguments)

    return a(a, a, a), code


def _between(builder: Any, value: Any, low: Any, high: Any) -> Any:
    value = builder.select(builder.fcmp_ordered(">", low, value), low, value)
    return builder.select(builder.fcmp_ordered("<", high, value), high, value)


@intrinsic  # type: ignore[untyped-decorator]
def negative(typing: Any, a: Any) -> Any:
    """−a."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fneg(arguments[0])

    return a(a), code


@intrinsic  # type: ignore[untyped-decorator]
def side_of(typing: Any, a: Any, border: Any) -> Any:
    """1 where a > border, else −1."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        above, below = (ir.Constant(a.vector, [side] * a.count) for side in (1.0, -1.0))
        return builder.select(builder.fcmp_ordered(">", *arguments), above, below)

    return a(a, a), code


class _Series(NamedTuple):
    """How e^r is computed in a precision: e^far is near the largest number; adding and subtracting 1.5·2^digits rounds
    to a whole number; ln 2 in two parts, of which the first has few digits; so many terms of the series.
    """

    far: float
    digits: int
    log2: tuple[float, float]
    terms: int


_SERIES = {
    _SINGLE: _Series(87.0, 23, (0.693359375, -2.12194440e-4), 8),
    _DOUBLE: _Series(700.0, 52, (0.693147180369123816490, 1.90821492927058770002e-10), 14),
}


@intrinsic  # type: ignore[untyped-decorator]
def sigmoid(typing: Any, z: Any) -> Any:
    """1/(1 + e^−z), to a few units of the last digit; e^−z = 2^k·e^r with k whole and |r| ≤ ln(2)/2.

    One piece of code without arrays: as a function that is handed its constants it would be called, and count who
    holds them, which threads do one after the other.
    """
    far, digits, log2, terms = _SERIES[z.element]
    whole = ir.VectorType(_PLACE if z.element == _SINGLE else _INDEX, z.count)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def every(number: float) -> Any:
            return ir.Constant(z.vector, [number] * z.count)

        value = _between(builder, arguments[0], every(-far), every(far))
        rounder, one = every(1.5 * 2.0**digits), every(1.0)
        k = builder.fsub(builder.fadd(builder.fmul(value, every(-1.0 / math.log(2.0))), rounder), rounder)
        r = _plus_product(builder, z, value, k, every(log2[0]))
        r = builder.fneg(_plus_product(builder, z, r, k, every(log2[1])))
        square, even, odd = builder.fmul(r, r), every(0.0), every(0.0)
        for i in range(terms - 2, -1, -2):  # even and odd terms do not wait for each other
            even = _plus_product(builder, z, every(1.0 / math.factorial(i)), even, square)
            odd = _plus_product(builder, z, every(1.0 / math.factorial(i + 1)), odd, square)
        power = builder.bitcast(_plus_product(builder, z, even, odd, r), whole)
        moved = builder.shl(builder.fptosi(k, whole), ir.Constant(whole, [digits] * z.count))
        return builder.fdiv(one, builder.fadd(one, builder.bitcast(builder.add(power, moved), z.vector)))

    return z(z), code


@intrinsic  # type: ignore[untyped-decorator]
def totals(typing: Any, array: Any, at: Any) -> Any:
    """Sums of sixteen vectors of sixteen numbers that follow one another: of neighbours, of neighbouring pairs, …"""
    lanes = _sixteen(array)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, count = _pointer(context, builder, array, lanes, *arguments), lanes.count
        vectors = [
            builder.load(builder.gep(start, [ir.Constant(_INDEX, i)]), align=_align(lanes)) for i in range(count)
        ]
        step = 1
        while step < count:
            left = [i - step + count if i & step else i for i in range(count)]
            right = [i + step for i in left]
            vectors = [_pairs(builder, a, b, left, right) for a, b in zip(vectors[::2], vectors[1::2])]
            step *= 2
        return vectors[0]

    return lanes(array, types.intp), code


@intrinsic  # type: ignore[untyped-decorator]
def total(typing: Any, a: Any) -> Any:
    """The sum of the numbers, likewise."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, count = arguments[0], a.count
        while count > 1:
            places = list(range(0, count, 2))
            value, count = _pairs(builder, value, value, places, [place + 1 for place in places]), count // 2
        return builder.extract_element(value, ir.Constant(_PLACE, 0))

    return (types.float32 if a.element == _SINGLE else types.float64)(a), code


def _pairs(builder: Any, a: Any, b: Any, left: list[int], right: list[int]) -> Any:
    """Sums of the numbers of a and b that stand at these places, b's counted behind a's."""
    kind = ir.VectorType(_PLACE, len(left))
    return builder.fadd(*(builder.shuffle_vector(a, b, ir.Constant(kind, places)) for places in (left, right)))
