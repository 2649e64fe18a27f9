"""Values in messages: no program shows the login of a URL, whichever setting or argument has it."""

import pytest

import rllib
from rllib import PPOConfig, tune
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config

LOGINS = ["sftp://me:hunter2@host/runs", "https://hunter2@host/runs"]


def test_no_message_about_settings_has_a_password():
    """Each setting of any algorithm in turn, and then all of an algorithm, are URLs with a login."""
    shown, seen = "", {"env_wrappers"}  # names of classes, which are no places, and are split at ":"
    for name in algorithm_names():
        settings = get_algorithm_config(name).settings.keys() - {"env_wrappers"}
        for names in (*([each] for each in sorted(settings - seen)), sorted(settings)):
            try:
                config = get_algorithm_config(name).update_from_dict(dict.fromkeys(names, LOGINS[0]))
                shown += repr(config)
                config.validate()
            except (ValueError, TypeError) as error:
                shown += str(error)
            assert "hunter2" not in shown, (name, names)
        seen |= settings
    assert "input_=" in shown and "output=" in shown


def small():
    return PPOConfig().environment("CartPole-v1").build()


PLACES = {
    "input_": lambda login: rllib.BCConfig().environment("CartPole-v1").offline_data(input_=login).build(),
    "input_ of several": lambda login: rllib.BCConfig().environment("CartPole-v1").offline_data(input_=[login]).build(),
    "environment": lambda login: PPOConfig().environment(login).build(),
    "save": lambda login: small().save(login),
    "restore": lambda login: small().restore(login),
    "Algorithm": rllib.Algorithm.from_checkpoint,
    "load_policy": rllib.load_policy,
    "Policy": rllib.Policy.from_checkpoint,
    "ExperimentAnalysis": tune.ExperimentAnalysis,
    "Tuner": lambda login: tune.Tuner.restore(login, "PPO"),
    "RunConfig": lambda login: pytest.fail(f"{tune.RunConfig(storage_path=login)!r}"),
    "PolicyClient": rllib.PolicyClient,
}


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("place", PLACES)
def test_no_message_about_a_place_has_a_password(tmp_path, monkeypatch, place, login):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BaseException) as raised:
        PLACES[place](login)
    assert "hunter2" not in str(raised.value) and "host" in str(raised.value), raised.value
