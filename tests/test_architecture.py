"""The layers of the package, the size of its files and the words at their heads."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / 'unimas_jax'
MODULES = sorted(PACKAGE.rglob('*.py'))
# Bottom first; a package imports only itself and lower lines.
LAYERS = (
    ('specs',),
    ('trace', 'protocol', 'metrics'),
    ('tools', 'data', 'workflows', 'rewards'),
    ('models', 'checkpoint'),
    ('worker',),
    ('controller',),
    ('runtime',),
    ('config',),
    ('cli',),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# Of one line, in the order in which they may build on each other.
ORDER_WITHIN = {
    ('protocol', 'trace'),
    ('metrics', 'trace'),
    ('metrics', 'protocol'),
    ('checkpoint', 'models'),
}
# Heavy or scoped packages, and the only parts of ours that may import them.
ALLOWED = {
    'gin': {'config'},
    'ray': {'runtime'},
    'jax': {'models', 'checkpoint', 'worker', 'runtime'},
    'flax': {'models'},
    'optax': {'worker'},
    'orbax': {'checkpoint'},
    'torch': set(),
    'tensorflow': set(),
    'tensorflow_datasets': {'data'},
}


def part_of(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).with_suffix('').parts[0]


def imports_of(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{path}: relative import'
            found.update(f'{node.module}.{alias.name}' for alias in node.names)
    return found


@pytest.mark.parametrize('path', MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_module_imports_only_lower_layers(path):
    part = part_of(path)
    if part == '__init__':
        return
    for name in imports_of(path):
        pieces = name.split('.')
        if pieces[0] == 'unimas_jax' and len(pieces) > 1:
            other = pieces[1]
            assert (
                other == part
                or LEVEL[other] < LEVEL[part]
                or (part, other) in ORDER_WITHIN
            ), f'{part} imports {name}'
        elif pieces[0] in ALLOWED:
            assert part in ALLOWED[pieces[0]], f'{part} imports {name}'


def test_controller_knows_no_worker():
    for path in (PACKAGE / 'controller').rglob('*.py'):
        for name in imports_of(path):
            assert not name.startswith(
                ('unimas_jax.worker', 'unimas_jax.models', 'unimas_jax.checkpoint')
            ), f'{path.name} imports {name}'


@pytest.mark.parametrize('path', MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_module_is_short_and_says_what_it_holds(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    assert ast.get_docstring(ast.parse(text)), 'no module docstring'


def test_imports_have_no_cycle():
    names = {
        '.'.join(('unimas_jax', *path.relative_to(PACKAGE).with_suffix('').parts)): path
        for path in MODULES
    }
    graph = {
        name: {
            candidate
            for imported in imports_of(path)
            for candidate in (imported, imported.rpartition('.')[0])
            if candidate in names and candidate != name
        }
        for name, path in names.items()
    }
    done: set[str] = set()

    def visit(name, trail):
        assert name not in trail, f'cycle: {" -> ".join([*trail, name])}'
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, [*trail, name])
            done.add(name)

    for name in sorted(graph):
        visit(name, [])


def test_basenames_are_unique():
    """Except in `cli`, where a module is named as its subcommand."""
    names = [
        path.name
        for path in MODULES
        if path.name != '__init__.py' and part_of(path) != 'cli'
    ]
    assert sorted(names) == sorted(set(names))


def test_only_specs_reexports():
    for path in PACKAGE.rglob('__init__.py'):
        if path.parent.name != 'specs':
            assert len(ast.parse(path.read_text()).body) == 1, path


def test_the_driver_side_does_not_load_jax():
    """Importing everything the driver uses leaves jax out of the process."""
    parts = ('config', 'cli.main', 'controller.loop', 'rewards.credit')
    code = '; '.join(f'import unimas_jax.{part}' for part in parts)
    check = f"{code}; import sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, '-c', check], cwd=ROOT).returncode == 0


def test_the_readme_lists_every_module():
    text = (ROOT / 'README.md').read_text()
    for path in MODULES:
        if path.name != '__init__.py':
            assert f'\n{path.relative_to(ROOT)} ' in text, path
