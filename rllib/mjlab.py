"""`python -m rllib.mjlab [train|play|export] --task TASK ...`: tasks of mjlab (rllib/labs)."""

from rllib.labs.command import main

if __name__ == "__main__":
    main("mjlab")
