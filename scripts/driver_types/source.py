"""Types of a driver, from its source tree: its headers are preprocessed with a few types of the kernel instead of the kernel's headers,
the definitions that are needed are compiled, and read as BTF.
"""

import os
import re
import shutil
import subprocess
import tempfile

import btf

HERE = os.path.dirname(os.path.abspath(__file__))
# Headers of the driver that stand between it and the kernel. kernel.h has what is needed of both.
REPLACED = "uvm_linux.h", "nv-linux.h", "conftest.h"
HEADERS = (
    "nvtypes.h nv-kthread-q.h uvm_types.h uvm_ioctl.h uvm_linux_ioctl.h uvm_processors.h uvm_perf_events.h uvm_hal_types.h uvm_gpu.h uvm_va_block.h "
    "uvm_va_range.h uvm_fd_type.h"
).split()
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\d[\w.]*|<<|>>|->|[<>=!]=|&&|\|\||\.\.\.|\S')
WORD = re.compile(r"[A-Za-z_]\w*$")


def folders(tree):
    """Folders of nvidia-uvm and of the headers that modules share, below a source tree."""
    for root in tree, os.path.join(tree, "kernel-open"), os.path.join(tree, "kernel"):
        if os.path.exists(os.path.join(root, "nvidia-uvm", "uvm_types.h")):
            return os.path.join(root, "nvidia-uvm"), os.path.join(root, "common", "inc")
    raise btf.Error(f"{tree} is no source of the driver: it has no nvidia-uvm/uvm_types.h")


def run(command, text, what):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise btf.Error(f"{what}: {first}")
    return done.stdout


def definitions(text):
    """Definitions at the top level of preprocessed C, as lists of tokens, without functions."""
    current, depth, attribute, in_function = [], 0, 0, False
    for token in TOKEN.findall(text):
        if token == "{" and depth == 0 and current and current[-1] == ")" and "__attribute__" not in current:
            in_function = True
        depth += (token in "{([") - (token in "})]")
        current.append(token)
        if depth == 0 and in_function and token == "}":
            current, in_function = [], False
        elif depth == 0 and token == ";":
            yield current
            current = []


def names(tokens):
    """Names that a definition defines: its tag and enumerators, and those of a typedef."""
    found, depth, before = set(), 0, ["", ""]
    is_typedef, is_enum, is_defined = tokens[0] == "typedef", "enum" in tokens[:2], "{" in tokens
    for token, following in zip(tokens, tokens[1:]):
        depth += (token in "{[(") - (token in "}])")
        if WORD.match(token):
            is_tag = depth == 0 and before[1] in ("struct", "union", "enum") and is_defined
            is_enumerator = depth == 1 and is_enum and before[1] in ("{", ",")
            is_type = is_typedef and depth == 0 and following in (";", ",", "[", "__attribute__")
            is_pointer = is_typedef and depth == 1 and before == ["(", "*"]
            if is_tag or is_enumerator or is_type or is_pointer:
                found.add(token)
        before = [before[1], token]
    return found


def needs(tokens, whole):
    """Names in a definition, and whether each is needed whole: of what is only pointed to, the name is enough."""
    for token, following in zip(tokens, [*tokens[1:], ""]):
        if WORD.match(token):
            yield token, whole and following != "*"


def closure(text, roots):
    """The definitions of preprocessed C that `roots` need, in their order."""
    every = list(definitions(text))
    by_name = {}
    for at, tokens in enumerate(every):
        for name in names(tokens):
            by_name.setdefault(name, []).append(at)
    wanted, seen = set(), set()
    left = [(name, True) for name in roots]
    while left:
        need = left.pop()
        if need in seen:
            continue
        seen.add(need)
        name, whole = need
        for at in by_name.get(name, []):
            tokens = every[at]
            if whole or tokens[0] in ("typedef", "enum"):
                wanted.add(at)
                left += needs(tokens, whole or "{" in tokens)
    return "\n".join(" ".join(every[at]) for at in sorted(wanted)) + "\n"


def types(tree, roots, macros=()):
    """Types of a source tree: those of `roots` with all that they contain, and `macros` as enumerators named `macro_NAME`."""
    uvm, shared = folders(tree)
    with tempfile.TemporaryDirectory(prefix="layouts.") as work:
        includes = os.path.join(work, "include")
        shutil.copytree(shared, includes, ignore=lambda folder, names: [name for name in names if name.endswith(".c")])
        for name in os.listdir(uvm):
            if name.endswith(".h"):
                shutil.copy(os.path.join(uvm, name), includes)
        for name in REPLACED:
            with open(os.path.join(includes, name), "w", encoding="utf-8") as file:
                file.write("#pragma once\n")
        # What the tree lacks is the kernel's.
        for folder, _, files in list(os.walk(includes)):
            for name in files:
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    wanted = re.findall(r'^\s*#\s*include\s*[<"]([\w./-]+)[>"]', file.read(), re.M)
                for other in wanted:
                    place = os.path.join(includes, other)
                    if not os.path.exists(place) and not os.path.exists(os.path.join(folder, other)) and ".." not in other:
                        os.makedirs(os.path.dirname(place), exist_ok=True)
                        open(place, "w", encoding="utf-8").close()
        probe = f'#include "{HERE}/kernel.h"\n'
        probe += "".join(f'#include "{name}"\n' for name in HEADERS if os.path.exists(os.path.join(includes, name)))
        for name in macros:
            probe += f"#ifdef {name}\nenum {{ macro_{name} = {name} }};\n#endif\n"
        preprocess = ["gcc", "-E", "-P", "-nostdinc", "-w", "-D__KERNEL__", f"-I{includes}", "-x", "c", "-"]
        text = closure(run(preprocess, probe, "the headers cannot be preprocessed"), [*roots, *(f"macro_{name}" for name in macros)])
        object_file, types_file = os.path.join(work, "types.o"), os.path.join(work, "types.btf")
        compile_all = ["gcc", "-c", "-g", "-w", "-fno-eliminate-unused-debug-types", "-x", "c", "-", "-o", object_file]
        run(compile_all, text, "the definitions cannot be compiled")
        run(["pahole", "-J", f"--btf_encode_detached={types_file}", object_file], "", "pahole")
        with open(types_file, "rb") as file:
            return btf.Types(file.read())


def functions(tree, wanted):
    """Types of the parameters of those `wanted` functions that the source defines."""
    uvm, _ = folders(tree)
    pattern = re.compile(r"^[A-Za-z_][\w \t*]*?\b(" + "|".join(wanted) + r")\s*\(([^;{}]*)\)\s*\{", re.M)
    found = {}
    for name in sorted(os.listdir(uvm)):
        if name.endswith(".c"):
            with open(os.path.join(uvm, name), encoding="utf-8", errors="replace") as file:
                for match in pattern.finditer(file.read()):
                    found[match[1]] = [spelled(parameter) for parameter in match[2].split(",")]
    return found


def spelled(parameter):
    """Type of a parameter: what comes before its name."""
    kept = [token for token in TOKEN.findall(parameter)]
    if len(kept) > 1 and WORD.match(kept[-1]):
        kept.pop()
    return " ".join(kept)
