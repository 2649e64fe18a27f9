"""What users of Ray RLlib and Stable-Baselines3 bring along: their names, methods, files and programs.

| folder | for the rest of the library |
|---|---|
| `names` | translates names of settings, and says why others are absent |
| `methods` | further methods of algorithms, and constructors by their words |
| `files` | reads their checkpoints and models |
| `programs` | serves their modules to programs that import them (`rllib.as_ray`) |

What users import has paths outside: `rllib.core`, `rllib.callbacks`, `rllib.env.vec_env`, `rllib.as_ray`.
"""
