"""Settings in the words of Stable-Baselines3 and sb3-contrib, translated into ours.

    settings_from_sb3("PPO", {"n_steps": 32, "n_envs": 8, "batch_size": 256}, defaults=True)

gives the settings that make PPO here what `PPO("MlpPolicy", make_vec_env(ID, n_envs=8), n_steps=32, batch_size=256)` is
there. The words are the keywords of the algorithm's constructor, and these, which Stable-Baselines3 takes elsewhere:

| word | meaning |
|---|---|
| `n_envs` | number of environments that step together, 1 if it is not given |
| `n_timesteps` | length of the run in environment steps, which schedules and `exploration_fraction` are parts of |
| `action_space` | gymnasium space; only with a Box the deviation of PPO's and A2C's actions is a separate parameter |
| `normalize` | True, or the keywords of VecNormalize |
| `noise_type`, `noise_std` | RL Zoo's words for `action_noise` |

Values are numbers, texts, lists and dicts. Classes (`activation_fn=torch.nn.ReLU`) may be given by their names. The
defaults are those of Stable-Baselines3 2.9 and sb3-contrib 2.9.
"""

from rllib.compat.names.stable_baselines3.algorithms import has_words, is_share, settings_from_sb3

__all__ = ["has_words", "is_share", "settings_from_sb3"]
