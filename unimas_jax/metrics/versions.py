"""What a run was made with: packages, Python, platform and the commit of this code.

No host name, user name, path or environment variable is kept, so that a run folder
can be shared as it is.
"""

import importlib.metadata
import pathlib
import platform
import subprocess
from typing import Any

import unimas_jax

PACKAGES = (
    'unimas_jax',
    'jax',
    'jaxlib',
    'flax',
    'optax',
    'orbax-checkpoint',
    'chex',
    'transformers',
    'tokenizers',
    'safetensors',
    'ray',
    'gin-config',
    'tensorflow-datasets',
    'numpy',
    'bm25s',
    'httpx',
    'etils',
)


def collect() -> dict[str, Any]:
    """Return the versions; a package that is not installed is left out."""
    return {
        'python': platform.python_version(),
        'platform': f'{platform.system()} {platform.machine()}',
        'commit': _commit(),
        'packages': _installed(PACKAGES),
    }


def _installed(names: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """Return the commit of a source checkout, `+` added when files differ from it.

    An installed package has none; a repository that merely contains the environment
    would be another project's, hence the check for our own top level.
    """
    root = pathlib.Path(unimas_jax.__file__).parents[1]
    if not (root / '.git').exists():
        return ''
    try:
        commit = _git(root, 'rev-parse', 'HEAD')
        changed = _git(root, 'status', '--porcelain', '--untracked-files=no')
    except (OSError, subprocess.SubprocessError):
        return ''
    return commit + '+' if changed else commit


def _git(root: pathlib.Path, *arguments: str) -> str:
    done = subprocess.run(
        ['git', '-C', str(root), *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=10,
    )
    return done.stdout.strip()
