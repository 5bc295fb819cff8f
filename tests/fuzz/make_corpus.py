#!/usr/bin/env python3
"""Makes the fuzz targets' first inputs, corpus/idx, corpus/safetensors, corpus/png and corpus/plan: small files, good and bad ones.

Usage: make_corpus.py [folder to write into]. Needs Python alone.
"""

import gzip
import json
import os
import struct
import sys
import zlib


def idx(magic, shape, values):
    return struct.pack(f">{1 + len(shape)}I", magic, *shape) + values


def packed(data):
    return gzip.compress(data, mtime=0)


def safetensors(header, data=b""):
    text = (header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))).encode()
    return struct.pack("<Q", len(text)) + text + data


def plan(ranks, count, transfers, **more):
    keys = ("from", "to", "slice", "action", "round", "after")
    listed = [{key: value for key, value in zip(keys, t) if value is not None} for t in transfers]
    return json.dumps({"ranks": ranks, "count": count, "transfers": listed, **more}).encode()


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, bits, colour, rows, interlaced=0, more=b"", packed_rows=None):
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced)
    data = zlib.compress(rows) if packed_rows is None else packed_rows
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more + chunk(b"IDAT", data) + chunk(b"IEND", b"")


IMAGES = idx(0x803, [2, 3, 3], bytes(range(18)))
LABELS = idx(0x801, [5], bytes(range(5)))
TWO = {"a.weight": entry("F32", [2, 1], 0, 8), "b": entry("U8", [3], 8, 11)}
CORPUS = {
    "idx": {
        "images": IMAGES,
        "labels": LABELS,
        "images_gzip": packed(IMAGES),
        "labels_gzip": packed(LABELS),
        "two_members": packed(IMAGES[:20]) + packed(IMAGES[20:]),
        "stored_gzip": gzip.compress(IMAGES, compresslevel=0, mtime=0),
        "zeros_gzip": packed(idx(0x803, [100, 28, 28], bytes(78400))),
        "cut_gzip": packed(IMAGES)[:-9],
        "garbage_after_gzip": packed(IMAGES) + b"x",
        "float_values": idx(0xD03, [1, 1, 1], bytes(4)),
        "claims_much": idx(0x803, [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF], b""),
        "claims_the_most": idx(0x803, [1 << 20, 32, 32], bytes(9)),
        "trailing": LABELS + b"x",
        "empty": b"",
    },
    "safetensors": {
        "two": safetensors(TWO, bytes(range(11))),
        "metadata": safetensors({"__metadata__": {"format": "pt", "": ""}, **TWO}, bytes(11)),
        "nothing": safetensors("{}"),
        "types": safetensors(
            {
                "i": entry("I64", [], 0, 8),
                "j": entry("I32", [1, 1], 8, 12),
                "h": entry("BF16", [1], 12, 14),
                "none": entry("F32", [0, 7], 14, 14),
                "\u00e4": entry("U8", [2], 14, 16),
            },
            bytes(16),
        ),
        "escapes": safetensors('{ "\\u0061\\ud83d\\ude00\\n" : {"shape":[], "dtype":"U8", "data_offsets":[0,1]} }  ', b"x"),
        "overlap": safetensors({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, bytes(3)),
        "gap": safetensors({"a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 2, 3)}, bytes(3)),
        "twice": safetensors(json.dumps({"a": entry("U8", [0], 0, 0)})[:-1] + "," + json.dumps({"a": entry("U8", [0], 0, 0)})[1:]),
        "zero_byte": safetensors("{}\0 "),
        "trailing": safetensors(TWO, bytes(12)),
        "claims_much": safetensors({"a": entry("F32", [1 << 40], 0, 1 << 42)}, bytes(4)),
        "overflow": safetensors({"a": entry("F32", [1 << 62, 16, 0], 0, 0)}),
        "long_header": struct.pack("<Q", 99_999_999) + b"{}",
        "deep": safetensors('{"a":' + "[" * 200),
        "array": safetensors("[]"),
        "empty": b"",
    },
    "png": {
        "grey": png(3, 2, 8, 0, b"\0\1\2\3\1\4\5\6"),
        "grey16": png(1, 2, 16, 0, b"\2\1\2\4\1\2"),
        "bits": png(9, 2, 1, 0, b"\0\xaa\x80\0\x55\0"),
        "rgb": png(2, 2, 8, 2, b"\3" + bytes(range(6)) + b"\4" + bytes(range(6))),
        "grey_alpha": png(2, 1, 8, 4, b"\0\1\2\3\4"),
        "rgba16": png(1, 1, 16, 6, b"\0" + bytes(range(8))),
        "palette": png(3, 1, 8, 3, b"\0\0\1\2", more=chunk(b"PLTE", bytes(range(9))) + chunk(b"tRNS", b"\0\x80")),
        "interlaced": png(2, 2, 8, 0, b"\0\n\0\x14\0\x1e\x28", interlaced=1),
        "gamma": png(1, 1, 8, 0, b"\0\x80", more=chunk(b"gAMA", struct.pack(">I", 100000)) + chunk(b"tRNS", b"\0\1")),
        "text": png(1, 1, 8, 0, b"\0\x80", more=chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(9000)))),
        "large": png(600, 400, 1, 0, bytes(76 * 400)),
        "few_rows": png(2, 2, 8, 0, b"\0\1\2"),
        "no_deflate": png(2, 2, 8, 0, b"", packed_rows=b"not packed"),
        "claims_much": png(1 << 31, 1 << 31, 8, 0, b"\0"),
        "claims_the_most": png(8192, 8192, 8, 0, b"\0"),
        "cut": png(3, 2, 8, 0, b"\0\1\2\3\1\4\5\6")[:-9],
        "empty": b"",
    },
    "plan": {
        "star": plan(2, 8, [(1, 0, [0, 8], "add", 0), (0, 1, [0, 8], "copy", 1)]),
        "after": plan(3, 5, [(1, 0, [0, 5], "add", None, [1]), (2, 1, [0, 5], "add"), (0, 1, [0, 5], "copy", None, [0, 1]),
                             (1, 2, [0, 5], "copy", None, [2])]),
        "circle": plan(2, 8, [(1, 0, [0, 8], "add", None, [1]), (0, 1, [0, 8], "copy", None, [0])]),
        "twice": plan(2, 8, [(1, 0, [0, 8], "add", 0), (1, 0, [2, 4], "add", 1)]),
        "goal": plan(4, 64, [(0, r, [0, 64], "copy", r) for r in (1, 2, 3)], goal="broadcast", root=0),
        "each_with_each": plan(3, 18, [(0, 1, [2, 4], "copy", 0), (2, 1, [14, 16], "copy", 0)], goal="all_to_all"),
        "no_transfers": plan(1, 0, []),
        "large_numbers": plan(1024, 1 << 48, [(1023, 0, [0, 1 << 48], "add", 2147483646)]),
        "links": json.dumps({"links": [[0, 2, 1], [2, 0, 1], [1, 1, 0]]}).encode(),
        "two_islands": json.dumps({"links": [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]}).encode(),
        "deep": b"[" * 2000 + b"]" * 2000,
        "empty": b"",
    },
}

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
for kind, files in CORPUS.items():
    os.makedirs(os.path.join(folder, kind), exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(folder, kind, name), "wb") as file:
            file.write(data)
