#!/usr/bin/env python3
"""Check the spelling of all Markdown and of Rust's doc comments: British English, and the terms of tests/terms.txt."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

DOC_COMMENT = re.compile(r"^\s*//[/!] ?(.*)$", re.MULTILINE)
ASPELL = ["aspell", "list", "--mode=markdown", "--lang=en_GB-ize", "--ignore=2", "--encoding=utf-8"]


def prose(file: Path) -> str:
    """The text of a file that is written for readers."""
    text = file.read_text()
    return text if file.suffix == ".md" else "\n".join(DOC_COMMENT.findall(text))


def unknown_words(text: str) -> set[str]:
    """The words that the dictionary lacks, without their possessive."""
    words = subprocess.run(ASPELL, input=text, capture_output=True, text=True, check=True).stdout.split()
    return {word.removesuffix("'s") for word in words if word != "another's"}


def main() -> int:
    root = Path(__file__).resolve().parents[2]
    listed = (root / "tests/terms.txt").read_text().split()
    wrong = []
    if listed != sorted(set(listed), key=lambda term: (term.lower(), term)):
        wrong.append("tests/terms.txt: not sorted, or a term is there twice")
    names = subprocess.run(["git", "ls-files", "*.md", "*.rs"], cwd=root, capture_output=True, text=True, check=True)
    files = [root / name for name in names.stdout.split() if (root / name).exists()]
    # One dictionary lookup of all texts: aspell takes longer to start than to read.
    unknown = unknown_words("\n\n".join(map(prose, files)))
    where = defaultdict(list)
    for file in files:
        words = set(re.findall(r"[^\W\d_]+", prose(file)))
        for word in unknown & words:
            where[word].append(str(file.relative_to(root)))
    known = {*listed, *(term[0].upper() + term[1:] for term in listed)}
    for word in sorted(unknown - known):
        wrong.append(f"{word}: in {', '.join(where[word][:3]) or 'a word with an apostrophe'}")
    used = unknown | {word[0].lower() + word[1:] for word in unknown}
    wrong += [f"tests/terms.txt: {term} occurs nowhere" for term in listed if term not in used]
    print("\n".join(wrong) or f"{len(files)} files, {len(listed)} terms", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
