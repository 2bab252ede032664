#!/usr/bin/env python3
"""Compiles kernels.cu, matrices.cu and grids.cu to PTX by NVRTC: make.py libnvrtc.so.12 INCLUDE...

NVRTC is 12.9, of the package nvidia-cuda-nvrtc-cu12; the folders with headers are those of nvidia-cuda-runtime-cu12, nvidia-cuda-crt and nvidia-cuda-cccl-cu12.
"""

import ctypes
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent
ARCHITECTURES = {"kernels": "compute_75", "matrices": "compute_80", "grids": "compute_75"}


def check(result: int) -> None:
    if result:
        raise SystemExit(f"NVRTC: error {result}")


def text(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, name: str) -> str:
    size = ctypes.c_size_t()
    check(getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check(getattr(nvrtc, f"nvrtcGet{name}")(program, buffer))
    return buffer.value.decode()


def main() -> None:
    nvrtc = ctypes.CDLL(sys.argv[1])
    for name, architecture in ARCHITECTURES.items():
        source = (FOLDER / f"{name}.cu").read_bytes()
        program = ctypes.c_void_p()
        check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, f"{name}.cu".encode(), 0, None, None))
        options = [f"--gpu-architecture={architecture}", "--std=c++17", *(f"-I{folder}" for folder in sys.argv[2:])]
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), array):
            raise SystemExit(text(nvrtc, program, "ProgramLog"))
        # Without the constants of libcu++, hundreds of which no kernel uses.
        lines = text(nvrtc, program, "PTX").splitlines(keepends=True)
        (FOLDER / f"{name}.ptx").write_text("".join(line for line in lines if not line.startswith((".global", "// _ZN4")) or "4cuda3std" not in line))


main()
