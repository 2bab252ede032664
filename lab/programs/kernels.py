#!/usr/bin/env python3
"""Runs kernels with Numba-CUDA, unmodified, checks their results, and prints a line of JSON for each.

    kernels.py [--mib N] [--passes N] [--rounds N] [--hold]

Those of saxpy are managed arrays, together of N MiB, which each pass reads and writes whole. A round is all kernels.
"""
import argparse
import json
import sys
import time

import numpy
from numba import cuda, float32

BLOCK = 256
TILE = 16


@cuda.jit
def saxpy(a, x, y):
    at = cuda.grid(1)
    if at < y.size:
        y[at] += a * x[at]


@cuda.jit
def matmul(a, b, product):
    """One tile of the product a block, by tiles in shared memory."""
    of_a = cuda.shared.array((TILE, TILE), float32)
    of_b = cuda.shared.array((TILE, TILE), float32)
    row, column = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range(a.shape[1] // TILE):
        of_a[x, y] = a[row, tile * TILE + y]
        of_b[x, y] = b[tile * TILE + x, column]
        cuda.syncthreads()
        for at in range(TILE):
            total += of_a[x, at] * of_b[at, y]
        cuda.syncthreads()
    product[row, column] = total


@cuda.reduce
def total_of(left, right):
    return left + right


def run_saxpy(mib, passes):
    elements = (mib << 20) // 8
    x, y = (cuda.managed_array(elements, dtype=numpy.float32) for _ in range(2))
    # Small whole numbers: every sum is exact.
    x[:] = numpy.arange(elements) % 1000
    y[:] = 3
    for _ in range(passes):
        saxpy[-(-elements // BLOCK), BLOCK](float32(2), x, y)
    cuda.synchronize()
    return numpy.count_nonzero(y != 2 * passes * x + 3)


def run_matmul():
    a = (numpy.arange(128 * 64) % 7).reshape(128, 64).astype(numpy.float32)
    b = (numpy.arange(64 * 96) % 5).reshape(64, 96).astype(numpy.float32)
    product = cuda.device_array((128, 96), numpy.float32)
    matmul[(128 // TILE, 96 // TILE), (TILE, TILE)](cuda.to_device(a), cuda.to_device(b), product)
    return numpy.count_nonzero(product.copy_to_host() != a @ b)


def run_reduce():
    numbers = numpy.arange(10_000, dtype=numpy.float64)
    return int(total_of(cuda.to_device(numbers)) != numbers.sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=4)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--hold", action="store_true", help="wait for the end of standard input before the exit")
    options = parser.parse_args()
    all_wrong = 0
    kernels = [("saxpy", lambda: run_saxpy(options.mib, options.passes)), ("matmul", run_matmul), ("reduce", run_reduce)]
    for kernel, run in kernels * options.rounds:
        begin = time.monotonic()
        wrong = int(run())
        print(json.dumps({"kernel": kernel, "wrong": wrong, "seconds": round(time.monotonic() - begin, 3)}), flush=True)
        all_wrong += wrong
    if options.hold:
        sys.stdin.read()
    sys.exit(all_wrong > 0)


if __name__ == "__main__":
    main()
