from rllib.runs.entries import lookup

RESULT = {"timesteps_total": 500, "info": {"learner": {"kl": 0.1}}}


def test_lookup_follows_paths():
    assert lookup(RESULT, "info/learner/kl") == 0.1
    assert lookup(RESULT, "info/learner/entropy") is None
    assert lookup(RESULT, "timesteps_total/x") is None
