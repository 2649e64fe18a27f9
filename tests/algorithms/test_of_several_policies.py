"""Attributes of the only policy, in a run with several: which policies there are, and how to ask for one."""

import pytest

from rllib import APPOConfig, DQNConfig, SACConfig

OWN = "pettingzoo:mpe2.simple_speaker_listener_v4"
CONTINUOUS = {"env_config": {"continuous_actions": True}}
ATTRIBUTES = {
    "DQN": (DQNConfig, {}, ("policy", "learner", "replay", "trainee")),
    "SAC": (SACConfig, CONTINUOUS, ("policy", "learner", "replay", "trainee")),
    "APPO": (APPOConfig, {}, ("policy", "learner", "trainee")),
}


def config_of(name):
    config, environment, _ = ATTRIBUTES[name]
    settings = config().environment(OWN, **environment).rollouts(num_rollout_workers=0)
    return settings.training(model={"fcnet_hiddens": [4]})


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_of_the_only_policy_names_those_that_there_are(name):
    with config_of(name).multi_agent(policies="own").build() as algo:
        for owner, attributes in ((algo, ATTRIBUTES[name][2]), (algo.workers.local_worker(), ("policy",))):
            for attribute in attributes:
                with pytest.raises(ValueError, match=rf"^{attribute} is that of .*listener_0.*POLICY_ID"):
                    getattr(owner, attribute)


def test_the_only_policy_may_have_any_name():
    config = DQNConfig().environment("pettingzoo:mpe2.simple_spread_v3").rollouts(num_rollout_workers=0)
    config.multi_agent(policies=["both"], policy_mapping_fn={"*": "both"})
    with config.training(model={"fcnet_hiddens": [4]}).build() as algo:
        assert algo.policy is algo.policies["both"] and algo.replay is algo.replays["both"]
