"""How an algorithm is put together: `setup` before any worker starts; what fails ends what was started before it."""

import pytest

from rllib.algorithms.pg import PG, PGConfig
from rllib.evaluation.callbacks import DefaultCallbacks


class Part:
    def __init__(self, log):
        self.log = log

    def stop(self):
        self.log.append("part stopped")


class OwnPG(PG):
    log: list

    def setup(self):
        self.part = self._owns(Part(self.log))
        self.log.append(f"setup, workers: {hasattr(self, 'workers')}")

    def make_workers(self, **more):
        self.log.append("workers")
        if self.config.gamma == 0.5:
            raise ValueError("no workers today")
        return super().make_workers(**more)


class Refuses(DefaultCallbacks):
    def on_algorithm_init(self, *, algorithm, **kwargs):
        raise ValueError("the user's own mistake")


@pytest.fixture
def config():
    OwnPG.log = []
    return PGConfig(algo_class=OwnPG).environment("CartPole-v1").rollouts(num_rollout_workers=0)


def test_setup_comes_before_the_workers_and_stop_ends_its_parts_once(config):
    with config.build() as algo:
        assert OwnPG.log == ["setup, workers: False", "workers"]
    algo.stop()
    assert OwnPG.log[2:] == ["part stopped"]


@pytest.mark.parametrize("change", [lambda c: c.training(gamma=0.5), lambda c: c.callbacks(Refuses)])
def test_a_failure_stops_what_setup_has_made(config, change):
    with pytest.raises(ValueError, match=r"no workers today|the user's own mistake"):
        change(config).build()
    assert OwnPG.log[-1] == "part stopped"


def test_settings_that_are_schedules_have_their_value_of_now(config):
    with config.training(lr=[[0, 1.0], [400, 0.0]], train_batch_size=100).build() as algo:
        assert algo.trainee.scheduled("lr", "entropy_coeff") == {"lr": 1.0, "entropy_coeff": 0.0}
        stats = algo.train()["info"]["learner"]["default_policy"]["learner_stats"]
        assert stats["cur_lr"] == 1.0 and stats["entropy_coeff"] == 0.0
        assert algo.trainee.scheduled("lr") == {"lr": 0.75}
