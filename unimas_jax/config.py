"""gin files to an `Experiment`; the only module that imports gin.

The result is plain data: Ray actors receive it and never see gin, whose registry is
one per process and would silently give them defaults.
"""

import dataclasses
import importlib.util  # gin 0.5.0 uses it without importing it
import logging
import pathlib
import re
import sys
from collections.abc import Sequence

import gin.config

from unimas_jax import specs
from unimas_jax.models import zoo
from unimas_jax.rewards import catalog

assert importlib.util  # Keeps the import, which is for gin's sake.


class ConfigError(specs.SpecError):
    """A mistake in a gin file or binding; its message is one line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loaded:
    """What the gin files say.

    Attributes:
        experiment: The whole experiment, every model's specification filled in.
        text: The operative configuration, written to the run's folder.
        import_folders: Folders put on `sys.path` for the user's own modules; a
            runtime ships them to its workers.
    """

    experiment: specs.Experiment
    text: str
    import_folders: tuple[str, ...]


def load(
    gin_files: Sequence[str], gin_bindings: Sequence[str] = (), *, resolved: str = ''
) -> Loaded:
    """Load an experiment.

    The current folder and the folder of the first file go on `sys.path`, so that a
    gin file can import its neighbours. Included files are looked up from the current
    folder, then beside the first file, then where `unimas_jax` keeps its own.

    Args:
        gin_files: The experiment first; later files replace single bindings.
        gin_bindings: Single bindings, which win over files.
        resolved: The `config.gin` of a run, read before all others. What the others
            replace of it may have settings that nothing reads any more.

    Raises:
        ConfigError: A file is missing or does not parse, a name is unknown, a required
            field is not set, or a binding is read by nothing.
        SpecError: A value is not acceptable to the specification it is for.
    """
    gin_files = [resolved, *gin_files] if resolved else gin_files
    if not gin_files:
        raise ConfigError('--gin_file is missing: name at least one gin file.')
    first = pathlib.Path(_existing(gin_files[0])).resolve()
    folders = (str(pathlib.Path.cwd()), str(first.parent))
    for folder in reversed(folders):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    gin.clear_config()
    gin.config.register_file_reader(_open_found, _is_found)
    _parse([str(first), *map(_existing, gin_files[1:])], gin_bindings)
    experiment = _build(specs.Experiment)
    overrides = {
        name: _build(f'{name}/specs.ModelSpec')
        for name in experiment.groups
        if name not in experiment.models
    }
    models = {
        name: _located(experiment.models.get(name) or overrides[name])
        for name in experiment.groups
    }
    rule = experiment.credit
    experiment = dataclasses.replace(
        experiment,
        models=models,
        credit=catalog.parse(rule) if isinstance(rule, str) else rule,
    )
    _refuse_unread(pathlib.Path(first).read_text() if resolved else '')
    return Loaded(
        experiment=experiment,
        text=gin.operative_config_str(),
        import_folders=folders,
    )


def own_roots() -> tuple[pathlib.Path, ...]:
    """Return the folders below which this package's own `gin/` files lie.

    In a checkout that is the repository's root; in an installed wheel the files are
    packaged under `unimas_jax/configs/gin`.
    """
    package = pathlib.Path(__file__).parent
    candidates = (package.parent, package / 'configs')
    return tuple(root for root in candidates if (root / 'gin' / 'defaults').is_dir())


def _located(spec: specs.ModelSpec) -> specs.ModelSpec:
    """Make local folders absolute: workers run in folders of their own.

    Raises:
        SpecError: The zoo has no such architecture.
    """
    if spec.architecture:
        zoo.config(spec.architecture)

    def absolute(name: str) -> str:
        for root in (pathlib.Path(), *own_roots()):
            if name and (root / name).is_dir():
                return str((root / name).resolve())
        return name

    return dataclasses.replace(
        spec, weights=absolute(spec.weights), tokenizer=absolute(spec.tokenizer)
    )


def _find(name: str) -> pathlib.Path | None:
    """Return where a gin file lies; the first file's folder is on `sys.path`."""
    for root in (pathlib.Path(), *map(pathlib.Path, sys.path), *own_roots()):
        if (root / name).is_file():
            return root / name
    return None


def _is_found(name: str) -> bool:
    return _find(name) is not None


def _open_found(name: str):
    return open(str(_find(name)), encoding='utf-8')


def _existing(name: str) -> str:
    found = _find(name)
    if found is None:
        raise ConfigError(f'--gin_file {name!r}: no such file; check the path.')
    return str(found)


def _parse(files: Sequence[str], bindings: Sequence[str]) -> None:
    root_logger = logging.getLogger()
    root_logger.addFilter(_is_not_gin_lookup)
    try:
        gin.parse_config_files_and_bindings(files, list(bindings))
    except SyntaxError as error:
        where = f'{error.filename or "--gin_bindings"}, line {error.lineno}'
        text = (error.text or '').strip()
        raise ConfigError(f'{where}: cannot parse {text!r}: {error.msg}') from error
    except (ValueError, OSError, ImportError, NameError, AttributeError) as error:
        raise ConfigError(_one_line(error)) from error
    finally:
        root_logger.removeFilter(_is_not_gin_lookup)


def _is_not_gin_lookup(record: logging.LogRecord) -> bool:
    """Drop the errors gin logs for each place where an include is not."""
    return record.module != 'resource_reader'


def _build(selector: str | type):
    """Evaluate a configurable; its scope, if any, names a model."""
    try:
        return gin.get_configurable(selector)()
    except TypeError as error:
        missing = re.search(r'(\w+)\.__init__\(\) missing .*?: (.*)', str(error))
        if missing is None:
            raise
        names = missing.group(2).splitlines()[0]
        raise ConfigError(
            f'{missing.group(1)} lacks {names}: set it in a gin file.'
        ) from error
    except specs.SpecError as error:
        raise ConfigError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
    """Return gin's message without the trail of files and calls it appends."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = (lines[0] if lines else repr(error)).split(' Searched config paths')[0]
    place = next((line for line in lines[1:] if 'In file' in line), '')
    return f'{message} {place}'.strip()


def _refuse_unread(tolerated: str) -> None:
    """Raise if a binding had no effect, such as a misspelt macro or scope."""
    unread = _names(gin.config_str()) - _names(gin.operative_config_str())
    unread -= _names(tolerated)
    if unread:
        raise ConfigError(
            f'gin bindings that nothing reads: {sorted(unread)}; '
            'correct their names or delete them.'
        )


def _names(text: str) -> set[str]:
    return set(re.findall(r'^([\w./]+) =', text, flags=re.MULTILINE))
