"""How many attempts a single agent has for the tokens of a workflow of several roles.

    python scripts/match_budget.py runs/quickstart_full runs/quickstart_single_agent

Both runs must have ended, the single agent's with one attempt. Prints one JSON object:
the tokens that a query costs in the last evaluation of each, and the number of attempts
that comes closest, for the macro ATTEMPTS of gin/experiments/matched_budget.gin.
"""

import argparse
import json

from etils import epath

from unimas_jax.metrics.run_folder import RunFolder


def main():
    """Compare the two runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('workflow_run', help='folder of the run to compare with')
    parser.add_argument('agent_run', help='folder of the single agent, one attempt')
    parser.add_argument('--split', default='test', choices=('dev', 'test'))
    args = parser.parse_args()
    workflow, agent = (
        tokens_per_query(run, args.split) for run in (args.workflow_run, args.agent_run)
    )
    attempts = max(1, round(workflow / agent))
    print(json.dumps({'workflow': workflow, 'agent': agent, 'attempts': attempts}))


def tokens_per_query(run: str, split: str) -> float:
    """Return the tokens that one sample of a query cost in the last evaluation."""
    name = f'eval/{split}/response_tokens'
    metrics = RunFolder(epath.Path(run)).read_metrics()
    found = [values[name] for _, values in sorted(metrics.items()) if name in values]
    if not found:
        raise SystemExit(f'{run}: no {name}; the run must have been evaluated.')
    return found[-1]


if __name__ == '__main__':
    main()
