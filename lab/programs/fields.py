#!/usr/bin/env python3
"""Runs programs of Taichi, unmodified, on its CPU backend and then with CUDA, and prints a line of JSON for each: by how much they differ.

    fields.py [--mib N] [--steps N] [--pool-mib N] [--hold]

The stencil works on two fields, together of N MiB, which each step reads and writes whole: its results are equal to the last bit. Taichi's
own memory is a pool, which has to fit into the GPU. The material point method (as Taichi's mpm88) adds particles up on a grid by atomic operations, in any order.
"""
import argparse
import json
import os
import sys

import numpy

# Its first lines are no results.
os.environ["ENABLE_TAICHI_HEADER_PRINT"] = "0"
import taichi as ti  # noqa: E402

PARTICLES = 2048
GRID = 64
TIME_STEP = 2e-4


def stencil(mib, steps):
    side = int(((mib << 20) / 8) ** 0.5)
    one, other = (ti.field(ti.f32, (side, side)) for _ in range(2))

    @ti.kernel
    def fill():
        for i, j in one:
            one[i, j] = (i * 31 + j * 17) % 97

    @ti.kernel
    def smooth(of: ti.template(), to: ti.template()):
        for i, j in of:
            if 0 < i < side - 1 and 0 < j < side - 1:
                to[i, j] = 0.25 * (of[i - 1, j] + of[i + 1, j] + of[i, j - 1] + of[i, j + 1])
            else:
                to[i, j] = of[i, j]

    fill()
    for _ in range(steps):
        smooth(one, other)
        smooth(other, one)
    return one.to_numpy()


def material_points(steps):
    position, velocity = (ti.Vector.field(2, ti.f32, PARTICLES) for _ in range(2))
    affine = ti.Matrix.field(2, 2, ti.f32, PARTICLES)
    volume = ti.field(ti.f32, PARTICLES)
    grid_velocity = ti.Vector.field(2, ti.f32, (GRID, GRID))
    grid_mass = ti.field(ti.f32, (GRID, GRID))
    cell = 1 / GRID
    mass = (cell * 0.5) ** 2

    @ti.kernel
    def begin():
        for i in range(PARTICLES):
            position[i] = [(i % 64) / 160 + 0.2, (i // 64) / 80 + 0.2]
            velocity[i] = [0, -1]
            volume[i] = 1

    @ti.kernel
    def step():
        for i, j in grid_mass:
            grid_velocity[i, j] = [0, 0]
            grid_mass[i, j] = 0
        for p in position:
            base = int(position[p] / cell - 0.5)
            fraction = position[p] / cell - base
            weights = [0.5 * (1.5 - fraction) ** 2, 0.75 - (fraction - 1) ** 2, 0.5 * (fraction - 0.5) ** 2]
            stress = -TIME_STEP * 4 * 400 * (volume[p] - 1) * mass / cell**2
            shear = ti.Matrix([[stress, 0], [0, stress]]) + mass * affine[p]
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                weight = weights[i].x * weights[j].y
                grid_velocity[base + offset] += weight * (mass * velocity[p] + shear @ ((offset - fraction) * cell))
                grid_mass[base + offset] += weight * mass
        for i, j in grid_mass:
            if grid_mass[i, j] > 0:
                grid_velocity[i, j] /= grid_mass[i, j]
            grid_velocity[i, j].y -= TIME_STEP * 9.8
            if (i < 3 and grid_velocity[i, j].x < 0) or (i > GRID - 3 and grid_velocity[i, j].x > 0):
                grid_velocity[i, j].x = 0
            if (j < 3 and grid_velocity[i, j].y < 0) or (j > GRID - 3 and grid_velocity[i, j].y > 0):
                grid_velocity[i, j].y = 0
        for p in position:
            base = int(position[p] / cell - 0.5)
            fraction = position[p] / cell - base
            weights = [0.5 * (1.5 - fraction) ** 2, 0.75 - (fraction - 1) ** 2, 0.5 * (fraction - 0.5) ** 2]
            new_velocity = ti.Vector.zero(ti.f32, 2)
            new_affine = ti.Matrix.zero(ti.f32, 2, 2)
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                weighted = weights[i].x * weights[j].y * grid_velocity[base + offset]
                new_velocity += weighted
                new_affine += 4 * weighted.outer_product((offset - fraction) * cell) / cell**2
            velocity[p] = new_velocity
            position[p] += TIME_STEP * velocity[p]
            volume[p] *= 1 + TIME_STEP * new_affine.trace()
            affine[p] = new_affine

    begin()
    for _ in range(steps):
        step()
    return position.to_numpy()


def results(arch, options):
    ti.init(arch=arch, offline_cache=False, device_memory_GB=options.pool_mib / 1024, log_level=ti.ERROR)
    # Without CUDA, Taichi goes on with the CPU.
    assert ti.lang.impl.current_cfg().arch == arch, f"Taichi runs on {ti.lang.impl.current_cfg().arch}, not {arch}"
    return {"stencil": stencil(options.mib, options.steps), "mpm": material_points(options.steps * 4)}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--mib", type=int, default=4)
    options.add_argument("--steps", type=int, default=4)
    options.add_argument("--pool-mib", type=int, default=30)
    options.add_argument("--hold", action="store_true", help="wait for the end of the input before the exit")
    options = options.parse_args()
    truth = results(ti.cpu, options)
    ti.reset()
    found = results(ti.cuda, options)
    is_wrong = False
    for name, limit in ("stencil", 0.0), ("mpm", 1e-4):
        difference = float(numpy.abs(found[name] - truth[name]).max())
        is_wrong |= not difference <= limit or not numpy.isfinite(found[name]).all()
        print(json.dumps({"program": name, "largest_difference": difference, "limit": limit}), flush=True)
    if options.hold:
        sys.stdin.read()
    return is_wrong


if __name__ == "__main__":
    sys.exit(main())
