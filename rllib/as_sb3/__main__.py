"""`python -m rllib.as_sb3 SCRIPT ARGUMENTS`: a program for Stable-Baselines3, as `python SCRIPT ARGUMENTS`."""

import rllib.as_sb3
from rllib.compat.programs.program import main

if __name__ == "__main__":
    main("rllib.as_sb3", rllib.as_sb3.__doc__)
