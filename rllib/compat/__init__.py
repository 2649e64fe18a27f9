"""Compatibility with Ray RLlib and Stable-Baselines3: their names, methods, files and programs.

| folder | for the rest of the library |
|---|---|
| `names` | translates names of settings, and gives the reasons why others are absent |
| `methods` | further methods of algorithms, and constructors with their arguments |
| `files` | reads their checkpoints and models |
| `programs` | serves their modules to programs that import them (`rllib.as_ray`) |

Modules that users import have paths outside of this package: `rllib.core`, `rllib.callbacks`, `rllib.env.vec_env`,
`rllib.as_ray`.
"""
