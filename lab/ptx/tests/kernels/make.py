#!/usr/bin/env python3
"""Compiles kernels.cu to kernels.ptx by NVRTC: make.py libnvrtc.so.12 (12.9, package nvidia-cuda-nvrtc-cu12)."""

import ctypes
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent
OPTIONS = [b"--gpu-architecture=compute_75", b"--std=c++17"]


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
    source = (FOLDER / "kernels.cu").read_bytes()
    program = ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None))
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    if nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options):
        raise SystemExit(text(nvrtc, program, "ProgramLog"))
    (FOLDER / "kernels.ptx").write_text(text(nvrtc, program, "PTX"))


main()
