"""The table that `unimas eval` prints."""

from unimas_jax.metrics import evaluation_table


def test_a_table_has_measures_in_rows_and_splits_in_columns():
    metrics = {
        'eval/test/step': 80.0,
        'eval/test/score': 0.5,
        'eval/test/score_low': 0.25,
        'eval/test/score_high': 0.75,
        'eval/test/queries': 1319.0,
        'eval/test/pass@1': 0.125,
        'eval/test/response_tokens/answer': 12.5,
        'eval/test_best/score': 0.625,
        'eval/test_best/step': 60.0,
        'workflow/x/score': 1.0,
    }
    assert evaluation_table.render(metrics).split('\n') == [
        '                                                    test  test_best',
        'score                            0.5000 [0.2500, 0.7500]     0.6250',
        'pass@1                                            0.1250',
        'step [steps]                                          80         60',
        'queries [queries]                                  1,319',
        'response_tokens/answer [tokens]                  12.5000',
    ]
