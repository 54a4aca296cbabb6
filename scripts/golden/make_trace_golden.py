"""Write the golden traces of workflows, `tests/workflows/golden/WORKFLOW/CASE.json`.

  python scripts/golden/make_trace_golden.py [WORKFLOW ...]

The cases are in `tests/workflows/golden_cases_*.py`; without names, those of every
workflow are written. A change in a golden file is a change in what the workflow does:
read the difference before you keep it.
"""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / 'tests' / 'workflows')]

import golden_traces  # noqa: E402 - found through the path that is set above


def main() -> int:
    """Write the files and print their names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('workflow', nargs='*')
    chosen = parser.parse_args().workflow
    cases = golden_traces.cases()
    known = {workflow for workflow, _ in cases}
    if unknown := set(chosen) - known:
        parser.error(f'no cases of {sorted(unknown)}; there are {sorted(known)}')
    for name, case in cases.items():
        if chosen and name[0] not in chosen:
            continue
        path = golden_traces.path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = golden_traces.text_of(golden_traces.as_json(golden_traces.play(case)))
        path.write_text(f'{text}\n', encoding='utf-8')
        print(path.relative_to(ROOT))
    return 0


if __name__ == '__main__':
    sys.exit(main())
