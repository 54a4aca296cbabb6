"""What a run folder holds, as plain values that two runs can be compared by."""

from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder


def metrics_of(folder):
    """Metrics by step, without those that depend on the machine."""
    return {
        step: {k: v for k, v in row.items() if not k.startswith(('time/', 'system/'))}
        for step, row in RunFolder(folder).read_metrics().items()
    }


def traces_of(folder):
    """Keys, texts, lengths and log-probs by file."""
    run_folder = RunFolder(folder)
    return {
        (step, split): [
            [
                (call.key, call.text, call.response_tokens, call.mean_log_prob)
                for call in trace.invocations
            ]
            for trace, _ in traces.read(run_folder.trace_path(step, split))
        ]
        for step, split in run_folder.trace_files()
    }
