"""`unimas dryrun`: play a step of an experiment without weights."""

import argparse
import asyncio
import os
from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table

from unimas_jax import config
from unimas_jax.cli import flags
from unimas_jax.controller import dry_run, stand_ins, step
from unimas_jax.controller.dry_run import DryRun
from unimas_jax.controller.router import Endpoint
from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.runtime import dry
from unimas_jax.specs import EndpointSpec, Experiment, require
from unimas_jax.tools.openai_endpoint import ChatEndpoint
from unimas_jax.workflows import scripted

MAX_QUERIES = 8
"""Queries that are played unless more are asked for."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'dryrun',
        help='play a training step without weights, in seconds',
        description='Play one training step on the CPU, without weights: the workflow '
        'runs, rewards and credit are computed, and batches are packed. Roles say '
        'what their formats allow, some of it malformed, or what a file or an '
        'endpoint says. Without --data_dir, what is not at hand (data, corpora, '
        'servers) is replaced by samples; tokenizers are never fetched. Every '
        'stand-in is named.',
    )
    flags.add_experiment_flags(parser)
    parser.set_defaults(data_dir=None)
    players = parser.add_mutually_exclusive_group()
    players.add_argument(
        '--replies',
        metavar='FILE',
        help='JSON Lines of {"role": ..., "text": ...}, optionally with query, node, '
        'turn and call; the last line that fits a call is its reply',
    )
    players.add_argument(
        '--endpoint',
        metavar='URL',
        help='an OpenAI-compatible endpoint that plays every role, up to and with /v1',
    )
    parser.add_argument(
        '--endpoint_model', default='', metavar='NAME', help='its name for the model'
    )
    parser.add_argument(
        '--endpoint_key_variable',
        default='',
        metavar='VARIABLE',
        help='environment variable with its key (default: OPENAI_API_KEY, if set)',
    )
    parser.add_argument(
        '--malformed',
        type=float,
        default=0.25,
        metavar='SHARE',
        help='share of malformed replies, without --replies and --endpoint '
        '(default: 0.25)',
    )
    parser.add_argument(
        '--queries',
        type=int,
        default=0,
        metavar='N',
        help=f'queries to play; 0 takes those of a step, at most {MAX_QUERIES} '
        '(default: 0)',
    )
    parser.add_argument(
        '--output_dir',
        default='',
        metavar='DIR',
        help='keep the traces here, for `unimas traces show DIR`',
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Play and print; return the exit status."""
    require(0 <= args.malformed <= 1, '--malformed', args.malformed, 'use 0 to 1.')
    require(args.queries >= 0, '--queries', args.queries, 'use 0 or more.')
    require(
        not args.endpoint or bool(args.endpoint_model),
        '--endpoint_model',
        args.endpoint_model,
        'name the model that the endpoint is to use.',
    )
    loaded = flags.load(args)
    folder = _folder(args.output_dir) if args.output_dir else None
    played = asyncio.run(_play(loaded.experiment, args))
    _show(played, loaded.experiment)
    if folder is not None:
        _keep(played, folder, loaded)
    return 0


async def _play(experiment: Experiment, args: argparse.Namespace) -> DryRun:
    """Return what was played; print a line for everything that stands in."""
    queries, lines = stand_ins.queries(experiment, args.data_dir)
    tokenizers, counted = dry.tokenizers_of(experiment.models)
    async with stand_ins.started_tools(experiment.tools, args.data_dir) as started:
        tools, replaced = started
        for line in [*lines, *counted, *replaced]:
            print(line)
        player = _player(experiment, args)
        try:
            return await dry_run.play(
                experiment,
                dry.DryRuntime(experiment, player, tokenizers),
                step.batch(
                    queries,
                    cursor=0,
                    count=args.queries or min(experiment.queries_per_step, MAX_QUERIES),
                    seed=experiment.seed,
                ),
                samples=experiment.samples_per_query,
                tools=tools,
                endpoints=dict.fromkeys(experiment.endpoints, player),
            )
        finally:
            if isinstance(player, ChatEndpoint):
                await player.stop()


def _player(experiment: Experiment, args: argparse.Namespace) -> Endpoint:
    """Return who speaks for every role."""
    if args.endpoint:
        variable = args.endpoint_key_variable
        if not variable and os.environ.get('OPENAI_API_KEY'):
            variable = 'OPENAI_API_KEY'
        return ChatEndpoint(
            EndpointSpec(
                url=args.endpoint, model=args.endpoint_model, api_key_variable=variable
            )
        )
    if args.replies:
        return scripted.ScriptedPlayer(scripted.recorded_script(args.replies))
    script = scripted.varied_script(
        experiment.workflow.roles, malformed=args.malformed, seed=experiment.seed
    )
    return scripted.ScriptedPlayer(script)


def _folder(output_dir: str) -> RunFolder:
    folder = RunFolder(output_dir)
    folder.prepare()
    require(
        not folder.config.exists(),
        '--output_dir',
        output_dir,
        'it holds a run already; choose another folder.',
    )
    return folder


def _keep(played: DryRun, folder: RunFolder, loaded: config.Loaded) -> None:
    folder.write_config(loaded.text)
    folder.write_versions()
    folder.append_metrics(dry_run.STEP, played.metrics)
    traces.write(folder.trace_path(dry_run.STEP), played.groups, played.credits)
    print(f'traces: unimas traces show {folder.root}')


def _show(played: DryRun, experiment: Experiment) -> None:
    """Print what roles said and earned, and what batches became of it."""
    console = Console(highlight=False)
    metrics, name = played.metrics, experiment.workflow.name
    console.print(_roles(metrics, experiment))
    console.print(_parts(metrics, experiment))
    console.print(_batches(metrics, experiment))
    count = lambda key: int(metrics.get(f'credit/{key}', 0))
    words = [
        f'{name}: {metrics[f"workflow/{name}/samples"]:.0f} samples',
        f'score {metrics.get(f"workflow/{name}/score", 0.0):.3f}',
        *(f'{count(key)} calls {key}' for key in ('credited', 'masked', 'dropped')),
    ]
    if count('groups'):
        signal = count('groups_without_signal')
        words.append(f'{signal} of {count("groups")} groups without signal')
    print(', '.join(words))


def _roles(metrics: Mapping[str, float], experiment: Experiment) -> Table:
    table = _table(
        'role',
        'model',
        'calls',
        'legal',
        'cut',
        'reads',
        'says',
        'reward',
        'advantage',
        '±',
    )
    mapping = experiment.mapping
    for role in (role.name for role in experiment.workflow.roles):
        model = mapping.model_of.get(role, 'an endpoint')
        if role in experiment.frozen:
            model += ', frozen'
        value = lambda key, form, role=role: _value(metrics, f'role/{role}/{key}', form)
        table.add_row(
            role,
            model,
            value('calls', '.0f'),
            value('legal', '.0%'),
            value('truncated', '.0%'),
            value('prompt_tokens', '.0f'),
            value('response_tokens', '.0f'),
            value('reward', '+.2f'),
            value('advantage_mean', '+.2f'),
            value('advantage_std', '.2f'),
        )
    return table


def _parts(metrics: Mapping[str, float], experiment: Experiment) -> Table:
    roles = [role.name for role in experiment.workflow.roles]
    found = {
        name.split('/reward/', 1)[1]: None
        for name in metrics
        if name.startswith('role/') and '/reward/' in name
    }
    table = _table('reward part', *roles)
    for part in found:
        table.add_row(
            part,
            *(_value(metrics, f'role/{role}/reward/{part}', '+.2f') for role in roles),
        )
    return table


def _batches(metrics: Mapping[str, float], experiment: Experiment) -> Table:
    table = _table('model', 'rollouts', 'tokens', 'micro-batches', 'padding')
    for model in experiment.groups:
        value = lambda key, form, model=model: _value(
            metrics, f'model/{model}/ppo/{key}', form
        )
        table.add_row(
            model,
            value('rollouts', '.0f'),
            value('tokens', ',.0f'),
            value('microbatches', '.0f'),
            value('padding_waste', '.0%'),
        )
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow='fold')
    for name in others:
        table.add_column(name, justify='right', overflow='fold')
    return table


def _value(metrics: Mapping[str, float], name: str, form: str) -> str:
    return format(metrics[name], form) if name in metrics else ''
