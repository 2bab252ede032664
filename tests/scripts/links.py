#!/usr/bin/env python3
"""Check the links of all Markdown: each relative one names a file of the repository, and each anchor a heading of it.

Paths of the repository in backticks exist, too, apart from those with the placeholder NAME or TARGET, as `policy/src/act/NAME.rs`. Where a test is named behind
one (`tests/a.rs::name`), the file has that name.
"""

import re
import subprocess
import sys
from pathlib import Path

CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?:\]\(|\bsrc(?:set)?=\")([^)\s\"]+)[)\"]")
PATH = re.compile(r"`([\w.-]+/[\w./-]+)(?:::(\w+))?`")
PLACEHOLDER = re.compile(r"\b(NAME|TARGET)\b")
HEADING = re.compile(r"^#+\s+(.+)$", re.MULTILINE)


def prose(file: Path) -> str:
    """The text of a page without its blocks of code."""
    return CODE.sub("", file.read_text())


def anchors(file: Path) -> set[str]:
    """The anchors of a page, as GitHub forms them: of equal headings the second gets -1."""
    found: dict[str, int] = {}
    names = set()
    for heading in HEADING.findall(prose(file)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"\s", "-", re.sub(r"[^\w\- ]", "", text))
        names.add(f"{name}-{found[name]}" if name in found else name)
        found[name] = found.get(name, 0) + 1
    return names


def mistakes(file: Path, root: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    for link in LINK.findall(prose(file)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file.resolve()
        if not target.is_relative_to(root) or not target.exists():
            wrong.append(f"{file.relative_to(root)}: {link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{file.relative_to(root)}: {link}: no such heading")
    return wrong


def missing_paths(file: Path, root: Path) -> list[str]:
    """The paths in backticks that do not exist, of those below a folder of the repository."""
    wrong = []
    for path, name in PATH.findall(prose(file)):
        if not (root / path.split("/")[0]).is_dir() or path.startswith("target/") or PLACEHOLDER.search(path):
            continue
        target = root / path
        # A binary or a group of files may stand without its ending.
        if not target.exists() and not any(target.parent.glob(f"{target.name}.*")):
            wrong.append(f"{file.relative_to(root)}: {path}: no such file")
        elif name and target.is_file() and name not in target.read_text():
            wrong.append(f"{file.relative_to(root)}: {path}: has no {name}")
    return wrong


def main() -> int:
    root = Path(__file__).resolve().parents[2]
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=root, check=True, capture_output=True, text=True)
    pages = [root / name for name in listed.stdout.split("\0") if name]
    wrong = [mistake for page in pages for mistake in mistakes(page, root) + missing_paths(page, root)]
    print("\n".join(wrong) or f"{len(pages)} pages, every link and path leads somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
