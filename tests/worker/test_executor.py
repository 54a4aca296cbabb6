"""Commands run in order, on one thread, and a gap is noticed."""

import threading

import jax.numpy as jnp
import pytest

from unimas_jax.worker.commands import Command, CommandGap
from unimas_jax.worker.executor import Executor


class Model:
    """Notes what runs, and on which thread."""

    def __init__(self):
        self.ran = []

    def run(self, name, args):
        self.ran.append((name, dict(args), threading.current_thread().name))
        return {'doubled': jnp.asarray(2 * args['x'])}


def command(number, x=1):
    return Command(number=number, model='m', name='double', args={'x': x})


def test_leader_and_follower_run_the_same_numbered_list():
    sent, leading, following = [], Model(), Model()
    leader = Executor({'m': leading}, broadcast=sent.append)
    follower = Executor({'m': following})
    outputs = [leader.launch('m', 'double', {'x': i}) for i in (3, 4)]
    assert [int(x['doubled']) for x in outputs] == [6, 8]
    for each in sent:
        follower.execute(each)
    assert [x.number for x in sent] == [0, 1]
    assert [x[:2] for x in leading.ran] == [x[:2] for x in following.ran]
    leader.stop()
    follower.stop()


def test_callers_on_many_threads_share_one_launching_thread():
    model, sent = Model(), []
    executor = Executor({'m': model}, broadcast=sent.append)
    threads = [
        threading.Thread(target=executor.launch, args=('m', 'double', {'x': i}))
        for i in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    executor.stop()
    assert len({name for _, _, name in model.ran}) == 1
    assert [x.number for x in sent] == list(range(20))
    assert [x.args['x'] for x in sent] == [args['x'] for _, args, _ in model.ran]


@pytest.mark.parametrize('number', [0, 2])
def test_a_command_out_of_turn_is_refused(number):
    """Seen twice, or one was skipped."""
    follower = Executor({'m': Model()})
    follower.execute(command(0))
    with pytest.raises(CommandGap, match=f'expected command 1 but saw {number} '):
        follower.execute(command(number))
    follower.stop()


def test_errors_reach_the_caller():
    executor = Executor({})
    with pytest.raises(KeyError):
        executor.launch('unknown', 'double', {})
    executor.stop()
