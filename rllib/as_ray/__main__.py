"""`python -m rllib.as_ray SCRIPT ARGUMENTS`: a program for Ray, run as `python SCRIPT ARGUMENTS` would."""

import rllib.as_ray
from rllib.compat.programs.program import main

if __name__ == "__main__":
    main("rllib.as_ray", rllib.as_ray.__doc__)
