"""`python -m rllib.isaaclab [train|play|export] --task TASK ...`: tasks of Isaac Lab (rllib/labs)."""

from rllib.labs.command import main

if __name__ == "__main__":
    main("isaaclab")
