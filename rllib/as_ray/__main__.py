"""`python -m rllib.as_ray SCRIPT ARGUMENTS`: a program for Ray, run as `python SCRIPT ARGUMENTS` would."""

import sys

import rllib.as_ray
from rllib.as_ray.program import run_program

USAGE = "usage: python -m rllib.as_ray SCRIPT [ARGUMENTS]"

if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(USAGE, file=sys.stderr)
        raise SystemExit(2)
    if sys.argv[1] in ("-h", "--help"):
        print(f"{USAGE}\n\n{rllib.as_ray.__doc__}")
        raise SystemExit
    run_program(sys.argv[1], sys.argv[2:])
