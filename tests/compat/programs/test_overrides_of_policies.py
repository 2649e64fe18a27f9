"""Settings of single policies by RLlib's name, next to the ids of the policies."""

import pytest

from rllib import PolicySpec, PPOConfig
from rllib.compat.methods.ray_rllib.settings import OVERRIDES
from rllib.env.tasks.multi_agent_cartpole import MultiAgentCartPole

OWN = {"p0": PPOConfig.overrides(lr=1e-2, gamma=0.5)}


def small():
    config = PPOConfig().environment(MultiAgentCartPole, env_config={"num_agents": 2})
    config.multi_agent(policy_mapping_fn=lambda agent, *args, **kwargs: f"p{agent}")
    return config.training(train_batch_size=60, sgd_minibatch_size=60, num_sgd_iter=1, model={"fcnet_hiddens": [4]})


@pytest.mark.parametrize(
    "policies", [{"p0", "p1"}, ["p0", "p1"], {"p0": PolicySpec(config={"lr": 1, "lambda_": 0.5}), "p1": (None,) * 4}]
)
@pytest.mark.parametrize("way", ["together", "one after the other", "as a dict"])
def test_a_policy_learns_by_its_overrides(policies, way):
    config = small()
    if way == "together":
        config.multi_agent(policies=policies, **{OVERRIDES: OWN})
    elif way == "one after the other":
        config.multi_agent(policies=policies).multi_agent(**{OVERRIDES: OWN})
    else:
        config.update_from_dict({"policies": policies, OVERRIDES: OWN})
    with config.build() as algo:
        assert (algo.config_of("p0").lr, algo.config_of("p0").gamma) == (1e-2, 0.5)
        assert algo.config_of("p0").lambda_ == (0.5 if isinstance(policies, dict) else algo.config.lambda_)
        assert (algo.config_of("p1").lr, algo.config_of("p1").gamma) == (algo.config.lr, algo.config.gamma)
        learned = algo.train()["learners"]
        assert learned["p0"]["default_optimizer_learning_rate"] == 1e-2


def test_overrides_without_their_policy_are_refused():
    with pytest.raises(TypeError, match="needs the ids of the policies"):
        small().multi_agent(**{OVERRIDES: OWN})
    with pytest.raises(TypeError, match="'p0', but the policies are a"):
        small().multi_agent(policies={"a"}, **{OVERRIDES: OWN})
    with pytest.raises(TypeError, match="no setting 'learning'"):
        small().multi_agent(policies={"p0"}, **{OVERRIDES: {"p0": PPOConfig.overrides(learning=1)}})
    assert small().multi_agent(policies={"p0"}, **{OVERRIDES: {}}).policies == {"p0"}
