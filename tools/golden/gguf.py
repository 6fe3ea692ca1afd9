"""GGUF version 3: files are written from tensors as bytes, and read back."""
import struct

import numpy

import weight_types

_SIMPLE = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_NUMBER_OF = {bool: 7, int: 4, float: 6, str: _STRING, list: _ARRAY}
_ALIGNMENT = 32


class Tensor:
    """`values` in float64 [..., rows, k], as `kind` holds them; `data` is how a file has them."""

    def __init__(self, kind, shape, data):
        self.kind, self.shape, self.data = kind, tuple(shape), data
        self.values = weight_types.TYPES[kind].values(data, shape).astype(numpy.float64)


def _text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value):
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return struct.pack("<IQ", _NUMBER_OF[type(value[0])], len(value)) + b"".join(map(_value, value))
    return struct.pack("<" + _SIMPLE[_NUMBER_OF[type(value)]], value)


def write(metadata, tensors):
    """The bytes of a file. `tensors`: name -> Tensor."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _text(key) + struct.pack("<I", _NUMBER_OF[type(value)]) + _value(value)
    body = b""
    for name, tensor in tensors.items():
        head += _text(name) + struct.pack("<I", len(tensor.shape))
        head += struct.pack("<%dQ" % len(tensor.shape), *reversed(tensor.shape))
        head += struct.pack("<IQ", weight_types.TYPES[tensor.kind].number, len(body))
        body += tensor.data + bytes(-len(tensor.data) % _ALIGNMENT)
    return head + bytes(-len(head) % _ALIGNMENT) + body


def read(data):
    """(metadata, tensors) of a file's bytes."""
    at = 4

    def take(code):
        nonlocal at
        value = struct.unpack_from("<" + code, data, at)[0]
        at += struct.calcsize("<" + code)
        return value

    def one(kind):
        nonlocal at
        if kind == _STRING:
            size = take("Q")
            at += size
            return data[at - size:at].decode()
        if kind == _ARRAY:
            element = take("I")
            return [one(element) for _ in range(take("Q"))]
        return take(_SIMPLE[kind])

    assert data[:4] == b"GGUF" and take("I") == 3
    num_tensors, num_keys = take("Q"), take("Q")
    metadata = {}
    for _ in range(num_keys):
        key = one(_STRING)
        metadata[key] = one(take("I"))
    directory = []
    for _ in range(num_tensors):
        name = one(_STRING)
        shape = [take("Q") for _ in range(take("I"))][::-1]
        directory.append((name, shape, take("I"), take("Q")))
    begin = -(-at // _ALIGNMENT) * _ALIGNMENT
    kinds = {entry.number: kind for kind, entry in weight_types.TYPES.items()}
    tensors = {}
    for name, shape, number, offset in directory:
        size = weight_types.TYPES[kinds[number]].size(shape)
        tensors[name] = Tensor(kinds[number], shape, data[begin + offset:begin + offset + size])
    return metadata, tensors
