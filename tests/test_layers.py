"""The direction of imports, read from the source: a module may import what lies before it, nothing after."""

import ast
from pathlib import Path

import pytest

import trtgate

PACKAGE = Path(trtgate.__file__).parent
ORDER = (
    ("errors", "record", "console"),
    ("profile",),
    ("traces",),
    ("plans",),
    ("runtimes",),
    ("loads",),
    ("evidence",),
    ("verdicts",),
    ("releases",),
    ("commands",),
    ("cli", "__main__"),
)
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
HEAVY = ("torch", "starlette", "uvicorn")


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name, `__init__` standing for its folder."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(path: Path) -> set[str]:
    """Every module that a file imports, also inside functions, as dotted names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in MODULES else node.module for name in names)
    return found


def family(name: str) -> str:
    """The folder or file right below the package."""
    return name.split(".")[1] if "." in name else "trtgate"


EDGES = {
    name: {other for other in imports(path) if other in MODULES and other != name}
    for name, path in MODULES.items()
}


@pytest.mark.parametrize("name", [name for name in MODULES if family(name) in LEVEL])
def test_a_module_imports_nothing_that_comes_after_it(name: str) -> None:
    late = [
        other
        for other in EDGES[name]
        if family(other) in LEVEL and LEVEL[family(other)] > LEVEL[family(name)]
    ]
    assert late == []


def test_every_family_has_its_place_in_the_order() -> None:
    assert {family(name) for name in MODULES} - set(LEVEL) == {"trtgate", "reference"}


def test_the_reference_runtime_and_the_rest_do_not_import_each_other() -> None:
    crossing = [
        (name, other)
        for name, others in EDGES.items()
        for other in others
        if (family(name) == "reference") != (family(other) == "reference") and other != "trtgate"
    ]
    assert crossing == []


def test_only_the_reference_runtime_imports_its_heavy_libraries() -> None:
    guilty = [
        name
        for name, path in MODULES.items()
        if family(name) != "reference" and any(other.split(".")[0] in HEAVY for other in imports(path))
    ]
    assert guilty == []


def test_members_of_a_family_do_not_import_their_own_package() -> None:
    guilty = [
        name for name, others in EDGES.items() if name.rpartition(".")[0] in others and name.count(".") > 1
    ]
    assert guilty == []


def test_there_is_no_cycle() -> None:
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name not in done:
            for other in EDGES[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())
