"""Feature ids (fids) as a job makes them, for TensorFlow Serving and ONNX, which take no text.

    from fids import fid
    fid(2, "Toy Story")      # text in the feature of slot 2: a hash
    fid(1, 17)               # an integer is its own signature
    fid(1, -17, hash=True)   # an integer of a feature with hash: hash

monolith model describe DIR and assets.extra/monolith.json show each feature's slot.
"""

import os
import struct
import sys

MASK = (1 << 64) - 1
K0, K1, K2, K128 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F, 0x9DDFEA08EB382D69


def fid(slot, value, hash=False):
    """The fid of an int, or of text as str or UTF-8 bytes. Digits in text count as text here."""
    if isinstance(value, int):
        signature = city64(struct.pack("<Q", value & MASK)) & (1 << 48) - 1 if hash else value
        if not 0 <= signature < 1 << 48:
            raise ValueError(f"{value} is no id: 0 to {(1 << 48) - 1}, or hash: hash in the job")
    else:
        signature = city64(value.encode() if isinstance(value, str) else value) & (1 << 48) - 1
    return slot << 48 | signature


def u64(s, at=0):
    return struct.unpack_from("<Q", s, at)[0]


def ror(v, by):
    v &= MASK
    return v >> by | v << 64 - by & MASK


def swap(v):
    return int.from_bytes((v & MASK).to_bytes(8, "little"), "big")


def fold(v):
    v &= MASK
    return v ^ v >> 47


def mix(u, v, mul):
    a = fold(((u ^ v) & MASK) * mul)
    return fold(((v ^ a) & MASK) * mul) * mul & MASK


def weak(s, at, a, b):
    w, x, y, z = struct.unpack_from("<4Q", s, at)
    a += w
    b = ror(b + a + z, 21)
    return a + x + y + z & MASK, b + ror(a + x + y, 44) + a & MASK


def city64(s):
    """CityHash64 1.1 of bytes."""
    n = len(s)
    mul = K2 + n * 2
    if n == 0:
        return K2
    if n < 4:
        return fold((s[0] + (s[n >> 1] << 8)) * K2 ^ (n + (s[-1] << 2)) * K0) * K2 & MASK
    if n < 8:
        first, last = struct.unpack_from("<I", s)[0], struct.unpack_from("<I", s, n - 4)[0]
        return mix(n + (first << 3), last, mul)
    if n <= 16:
        a, b = u64(s) + K2, u64(s, n - 8)
        return mix(ror(b, 37) * mul + a, (ror(a, 25) + b) * mul, mul)
    if n <= 32:
        a, b = u64(s) * K1, u64(s, 8)
        c, d = u64(s, n - 8) * mul, u64(s, n - 16) * K2
        return mix(ror(a + b, 43) + ror(c, 30) + d, a + ror(b + K2, 18) + c, mul)
    if n <= 64:
        a, b, c, d = u64(s) * K2, u64(s, 8), u64(s, n - 24), u64(s, n - 32)
        e, f, g, h = u64(s, 16) * K2, u64(s, 24) * 9, u64(s, n - 8), u64(s, n - 16) * mul
        u = ror(a + g, 43) + (ror(b, 30) + c) * 9
        v = ((a + g & MASK) ^ d) + f + 1
        w = swap((u + v) * mul) + h
        x = ror(e + f, 42) + c
        y = (swap((v + w) * mul) + g) * mul
        z = e + f + c
        a = swap((x + z) * mul + y) + b
        return fold((z + a) * mul + d + h) * mul + x & MASK
    x, y = u64(s, n - 40), u64(s, n - 16) + u64(s, n - 56)
    z = mix(u64(s, n - 48) + n, u64(s, n - 24), K128)
    v, w = weak(s, n - 64, n, z), weak(s, n - 32, y + K1, x)
    x = x * K1 + u64(s)
    for at in range(0, n - 1 & ~63, 64):
        x = ror(x + y + v[0] + u64(s, at + 8), 37) * K1 & MASK ^ w[1]
        y = ror(y + v[1] + u64(s, at + 48), 42) * K1 + v[0] + u64(s, at + 40)
        z = ror(z + w[0], 33) * K1
        v = weak(s, at, v[1] * K1, x + w[0])
        w = weak(s, at + 32, z + w[1], y + u64(s, at + 16))
        z, x = x, z
    return mix(mix(v[0], w[0], K128) + fold(y) * K1 + z, mix(v[1], w[1], K128) + x, K128)


if __name__ == "__main__":  # SLOT TEXT...
    for text in sys.argv[2:]:
        print(fid(int(sys.argv[1]), os.fsencode(text)))
