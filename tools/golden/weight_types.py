"""The weight types of GGUF files: their groups with random codes, and the values these stand for.

Layouts are those that ggml documents for its blocks (I2_S: bitnet.cpp). Values are made in float32, in the order that
ggml's conversions have, so that they are the same bits.
"""
import numpy

f32 = numpy.float32
u8 = numpy.uint8

_IQ4 = numpy.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], f32)
_FP4 = numpy.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], f32)


class Groups:
    """Bytes of groups, [groups, bytes], taken apart field by field."""

    def __init__(self, data, group_bytes):
        self.rows, self.at = numpy.frombuffer(data, u8).reshape(-1, group_bytes), 0

    def bytes(self, count):
        self.at += count
        return self.rows[:, self.at - count:self.at]

    def half(self):
        return numpy.ascontiguousarray(self.bytes(2)).view(numpy.float16).astype(f32)


def _half(values):
    return values.astype(numpy.float16).reshape(-1, 1).view(u8)


def _low_and_high(nibbles):  # of 16 bytes: 16 low nibbles, then 16 high ones
    return numpy.concatenate([nibbles & 15, nibbles >> 4], axis=1)


def _pack_nibbles(codes):
    return codes[:, :16] | codes[:, 16:] << 4


def _by_32(nibbles, width=32):  # of each `width` bytes the low nibbles, then the high ones
    parts = nibbles.reshape(len(nibbles), -1, width)
    return numpy.concatenate([parts & 15, parts >> 4], axis=2).reshape(len(nibbles), -1)


def _twos(data):  # of each 32 bytes: 32 codes of the lowest two bits, of the next two, ...
    parts = data.reshape(len(data), 2, 1, 32)
    return ((parts >> numpy.array([0, 2, 4, 6], u8).reshape(4, 1)) & 3).reshape(len(data), 256)


def _bits(data):  # of 32 bytes: the lowest bit of each, then the next, ...
    return ((data[:, None, :] >> numpy.arange(8, dtype=u8)[:, None]) & 1).reshape(len(data), 256)


def _fifths(data):  # bit i of 32
    return numpy.unpackbits(data, axis=1, bitorder="little")


def _scales_and_mins(data):  # 12 bytes: 8 scales and 8 mins of 6 bits
    low, middle, high = data[:, 0:4], data[:, 4:8], data[:, 8:12]
    scales = numpy.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=1)
    mins = numpy.concatenate([middle & 63, (high >> 4) | (middle >> 6) << 4], axis=1)
    return scales.astype(f32), mins.astype(f32)


def _pack_scales_and_mins(scales, mins):
    low = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    middle = mins[:, :4] | (mins[:, 4:] >> 4) << 6
    return numpy.concatenate([low, middle, (scales[:, 4:] & 15) | (mins[:, 4:] & 15) << 4], axis=1)


def _runs(per_run, size):
    return numpy.repeat(per_run, size, axis=1)


class Type:
    number = 0
    group = 1
    group_bytes = 4
    # To what llama.cpp rounds activations that meet these weights: "", "F16", "BF16", or groups of 32 or 256 int8.
    activations = ""

    def size(self, shape):
        return int(numpy.prod(shape)) // self.group * self.group_bytes

    def values(self, data, shape):
        return self.of(Groups(data, self.group_bytes)).reshape(shape)

    def random(self, numbers, shape, deviation):
        """Bytes of random weights whose mean is about 0."""
        assert shape[-1] % self.group == 0
        return self.make(numbers, int(numpy.prod(shape)) // self.group, deviation)


class F32(Type):
    def values(self, data, shape):
        return numpy.frombuffer(data, f32).reshape(shape)

    def random(self, numbers, shape, deviation):
        return numbers.normal(0, deviation, shape).astype(f32).tobytes()


class F16(Type):
    number, group_bytes, activations = 1, 2, "F16"

    def values(self, data, shape):
        return numpy.frombuffer(data, numpy.float16).astype(f32).reshape(shape)

    def random(self, numbers, shape, deviation):
        return numbers.normal(0, deviation, shape).astype(numpy.float16).tobytes()


def to_bf16(x):
    """The nearest bfloat16, as float32."""
    bits = numpy.asarray(x, f32).view(numpy.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000).astype(numpy.uint32).view(f32)


class BF16(Type):
    number, group_bytes, activations = 30, 2, "BF16"

    def values(self, data, shape):
        return (numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16).view(f32).reshape(shape)

    def random(self, numbers, shape, deviation):
        values = to_bf16(numbers.normal(0, deviation, shape))
        return (values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()


class OfThirtyTwo(Type):
    group, activations = 32, 32
    spread = 1.0  # of codes around their middle

    def scales(self, numbers, count, deviation):
        return numbers.uniform(0.5, 1.5, count) * deviation / self.spread

    def codes(self, numbers, count, below):
        return numbers.integers(0, below, (count, 32), dtype=u8)


class Q8_0(OfThirtyTwo):
    number, group_bytes, spread = 8, 34, 73.0

    def of(self, groups):
        d = groups.half()
        return groups.bytes(32).view(numpy.int8).astype(f32) * d

    def make(self, numbers, count, deviation):
        codes = numbers.integers(-127, 128, (count, 32), dtype=numpy.int8).view(u8)
        return numpy.concatenate([_half(self.scales(numbers, count, deviation)), codes], axis=1).tobytes()


class Q4_0(OfThirtyTwo):
    number, group_bytes, spread = 2, 18, 4.6

    def of(self, groups):
        d = groups.half()
        return (_low_and_high(groups.bytes(16)).astype(f32) - 8) * d

    def make(self, numbers, count, deviation):
        d = _half(self.scales(numbers, count, deviation))
        return numpy.concatenate([d, _pack_nibbles(self.codes(numbers, count, 16))], axis=1).tobytes()


class Q4_1(OfThirtyTwo):
    number, group_bytes, spread = 3, 20, 4.6

    def of(self, groups):
        d, m = groups.half(), groups.half()
        return _low_and_high(groups.bytes(16)).astype(f32) * d + m

    def make(self, numbers, count, deviation):
        d = self.scales(numbers, count, deviation)
        m = -d * numbers.uniform(6, 9, count)
        codes = _pack_nibbles(self.codes(numbers, count, 16))
        return numpy.concatenate([_half(d), _half(m), codes], axis=1).tobytes()


class Q5_0(OfThirtyTwo):
    number, group_bytes, spread = 6, 22, 9.2

    def of(self, groups):
        d = groups.half()
        high = _fifths(groups.bytes(4))
        return ((_low_and_high(groups.bytes(16)) | high << 4).astype(f32) - 16) * d

    def make(self, numbers, count, deviation):
        codes = self.codes(numbers, count, 32)
        high = numpy.packbits(codes >> 4, axis=1, bitorder="little")
        d = _half(self.scales(numbers, count, deviation))
        return numpy.concatenate([d, high, _pack_nibbles(codes & 15)], axis=1).tobytes()


class Q5_1(OfThirtyTwo):
    number, group_bytes, spread = 7, 24, 9.2

    def of(self, groups):
        d, m = groups.half(), groups.half()
        high = _fifths(groups.bytes(4))
        return (_low_and_high(groups.bytes(16)) | high << 4).astype(f32) * d + m

    def make(self, numbers, count, deviation):
        d = self.scales(numbers, count, deviation)
        m = -d * numbers.uniform(13, 18, count)
        codes = self.codes(numbers, count, 32)
        high = numpy.packbits(codes >> 4, axis=1, bitorder="little")
        return numpy.concatenate([_half(d), _half(m), high, _pack_nibbles(codes & 15)], axis=1).tobytes()


class IQ4_NL(OfThirtyTwo):
    number, group_bytes, spread = 20, 18, 71.0

    def of(self, groups):
        d = groups.half()
        return d * _IQ4[_low_and_high(groups.bytes(16))]

    make = Q4_0.make


class MXFP4(OfThirtyTwo):
    number, group_bytes, spread = 39, 17, 5.9

    def of(self, groups):
        e = groups.bytes(1).astype(numpy.int64)
        return _FP4[_low_and_high(groups.bytes(16))] * numpy.ldexp(f32(1), e - 128).astype(f32)

    def make(self, numbers, count, deviation):
        e = 128 + numpy.rint(numpy.log2(self.scales(numbers, count, deviation)))
        codes = _pack_nibbles(self.codes(numbers, count, 16))
        return numpy.concatenate([e.astype(u8)[:, None], codes], axis=1).tobytes()


class OfManyRuns(Type):
    """256 weights; runs of them share scales that are integers times one number."""
    group, activations = 256, 256

    def d(self, numbers, count, deviation, spread):
        return _half(numbers.uniform(0.8, 1.2, count) * deviation / spread)


class IQ4_XS(OfManyRuns):
    number, group_bytes = 23, 136

    def of(self, groups):
        d = groups.half()
        high = numpy.ascontiguousarray(groups.bytes(2)).view(numpy.uint16).astype(numpy.int64)
        low = groups.bytes(4).astype(numpy.int64)
        low = numpy.stack([low & 15, low >> 4], axis=2).reshape(len(d), 8)
        scales = (low | ((high >> 2 * numpy.arange(8)) & 3) << 4) - 32
        codes = _by_32(groups.bytes(128), 16)
        return d * _runs(scales.astype(f32), 32) * _IQ4[codes]

    def make(self, numbers, count, deviation):
        scales = numbers.integers(0, 64, (count, 8))
        low = (scales[:, 0::2] & 15 | (scales[:, 1::2] & 15) << 4).astype(u8)
        high = ((scales >> 4) << 2 * numpy.arange(8)).sum(axis=1).astype(numpy.uint16).reshape(-1, 1).view(u8)
        nibbles = numbers.integers(0, 256, (count, 128), dtype=u8)
        d = self.d(numbers, count, deviation, 18.5 * 71)
        return numpy.concatenate([d, high, low, nibbles], axis=1).tobytes()


class Q2_K(OfManyRuns):
    number, group_bytes = 10, 84

    def of(self, groups):
        both = groups.bytes(16)
        codes = _twos(groups.bytes(64)).astype(f32)
        d, dmin = groups.half(), groups.half()
        return d * _runs((both & 15).astype(f32), 16) * codes - dmin * _runs((both >> 4).astype(f32), 16)

    def make(self, numbers, count, deviation):
        scales = numbers.integers(3, 16, (count, 16))
        mins = numpy.clip(scales + numbers.integers(-2, 3, scales.shape), 0, 15)
        d = self.d(numbers, count, deviation, 10.5)
        dmin = _half(1.5 * d.view(numpy.float16).astype(numpy.float64))
        codes = numbers.integers(0, 256, (count, 64), dtype=u8)
        return numpy.concatenate([(scales | mins << 4).astype(u8), codes, d, dmin], axis=1).tobytes()


class Q3_K(OfManyRuns):
    number, group_bytes = 11, 110

    def of(self, groups):
        high = _bits(groups.bytes(32))
        codes = (_twos(groups.bytes(64)) | high << 2).astype(f32) - 4
        packed = groups.bytes(12)
        d = groups.half()
        low = numpy.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
        upper = numpy.concatenate([(packed[:, 8:] >> shift) & 3 for shift in (0, 2, 4, 6)], axis=1)
        scales = (low | upper << 4).astype(f32) - 32
        return d * _runs(scales, 16) * codes

    def make(self, numbers, count, deviation):
        random = numbers.integers(0, 256, (count, 32 + 64 + 12), dtype=u8)
        return numpy.concatenate([random, self.d(numbers, count, deviation, 18.5 * 2.3)], axis=1).tobytes()


class Q4_K(OfManyRuns):
    number, group_bytes, bits = 12, 144, 4

    def of(self, groups):
        d, dmin = groups.half(), groups.half()
        scales, mins = _scales_and_mins(groups.bytes(12))
        high = _bits(groups.bytes(32)) << 4 if self.bits == 5 else 0
        codes = (_by_32(groups.bytes(128)) | high).astype(f32)
        return _runs(d * scales, 32) * codes - _runs(dmin * mins, 32)

    def make(self, numbers, count, deviation):
        scales = numbers.integers(16, 64, (count, 8), dtype=u8)
        mins = numpy.clip(scales.astype(int) + numbers.integers(-4, 5, scales.shape), 0, 63).astype(u8)
        d = self.d(numbers, count, deviation, 42 * 2**self.bits / 3.46)
        dmin = _half((2**self.bits - 1) / 2 * d.view(numpy.float16).astype(numpy.float64))
        codes = numbers.integers(0, 256, (count, 128 if self.bits == 4 else 160), dtype=u8)
        return numpy.concatenate([d, dmin, _pack_scales_and_mins(scales, mins), codes], axis=1).tobytes()


class Q5_K(Q4_K):
    number, group_bytes, bits = 13, 176, 5


class Q6_K(OfManyRuns):
    number, group_bytes = 14, 210

    def of(self, groups):
        nibbles, high = _by_32(groups.bytes(128), 64), groups.bytes(64)
        codes = (nibbles | _twos(high) << 4).astype(f32) - 32
        scales = groups.bytes(16).view(numpy.int8).astype(f32)
        return groups.half() * _runs(scales, 16) * codes

    def make(self, numbers, count, deviation):
        codes = numbers.integers(0, 256, (count, 192), dtype=u8)
        scales = numbers.integers(-127, 128, (count, 16), dtype=numpy.int8).view(u8)
        return numpy.concatenate([codes, scales, self.d(numbers, count, deviation, 73 * 18.5)], axis=1).tobytes()


class Ternary(Type):
    """-1, 0 and 1 times a scale, which is the same everywhere in a tensor, as BitNet has it."""
    group, activations = 256, 256

    def d(self, count, deviation):
        return _half(numpy.full(count, deviation / 0.816))


class TQ1_0(Ternary):
    number, group_bytes = 34, 54

    def of(self, groups):
        def digits(data, count):  # a byte is a fraction of 256 in base 3: the first digits are the highest
            powers = 3 ** numpy.arange(count).reshape(-1, 1)
            return ((data.astype(int)[:, None, :] * powers % 256 * 3) >> 8).reshape(len(data), -1)

        fives, fours = groups.bytes(48), groups.bytes(4)
        codes = numpy.concatenate([digits(fives[:, :32], 5), digits(fives[:, 32:], 5), digits(fours, 4)], axis=1)
        return (codes.astype(f32) - 1) * groups.half()

    def make(self, numbers, count, deviation):
        def pack(codes):  # [groups, digits, bytes]
            value = 0
            for n in range(5):
                value = value * 3 + (codes[:, n] if n < codes.shape[1] else 0)
            return ((value * 256 + 242) // 243).astype(u8)

        codes = numbers.integers(0, 3, (count, 256))
        parts = [codes[:, :160].reshape(-1, 5, 32), codes[:, 160:240].reshape(-1, 5, 16),
                 codes[:, 240:].reshape(-1, 4, 4)]
        return numpy.concatenate([*map(pack, parts), self.d(count, deviation)], axis=1).tobytes()


class TQ2_0(Ternary):
    number, group_bytes = 35, 66

    def of(self, groups):
        codes = _twos(groups.bytes(64)).astype(f32) - 1
        return codes * groups.half()

    def make(self, numbers, count, deviation):
        codes = numbers.integers(0, 3, (count, 2, 4, 32), dtype=u8)
        packed = (codes << numpy.array([0, 2, 4, 6], u8).reshape(4, 1)).sum(axis=2).astype(u8).reshape(count, 64)
        return numpy.concatenate([packed, self.d(count, deviation)], axis=1).tobytes()


class I2_S(Type):
    number, group, group_bytes, activations = 36, 128, 32, 256

    def size(self, shape):
        return super().size(shape) + 32

    def values(self, data, shape):
        packed = numpy.frombuffer(data[:-32], u8).reshape(-1, 1, 32)
        codes = ((packed >> numpy.array([6, 4, 2, 0], u8).reshape(4, 1)) & 3).astype(f32) - 1
        return codes.reshape(shape) * numpy.frombuffer(data[-32:-28], f32)

    def random(self, numbers, shape, deviation):
        codes = numbers.integers(0, 3, (int(numpy.prod(shape)) // 128, 4, 32), dtype=u8)
        packed = (codes << numpy.array([6, 4, 2, 0], u8).reshape(4, 1)).sum(axis=1).astype(u8)
        return packed.tobytes() + f32(deviation / 0.816).tobytes() + bytes(28)


TYPES = {kind.__name__: kind() for kind in (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4, IQ4_XS, Q2_K,
                                            Q3_K, Q4_K, Q5_K, Q6_K, TQ1_0, TQ2_0, I2_S)}
