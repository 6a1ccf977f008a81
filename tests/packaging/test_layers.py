"""What modules say about themselves is what import-linter checks (`make check`)."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]


def modules_that_call_themselves_pure() -> set[str]:
    found = set()
    for path in (ROOT / "tapstore").rglob("*.py"):
        summary = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
        if summary.endswith("Pure."):
            found.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return found


def test_modules_that_call_themselves_pure_are_checked_to_be():
    (contract,) = [c for c in CONTRACTS if c["name"].startswith("Pure modules")]
    assert "tapstore.keys" in modules_that_call_themselves_pure()
    assert modules_that_call_themselves_pure() - set(contract["source_modules"]) == set()
