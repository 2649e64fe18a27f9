"""`python -m rllib` is the `rllib` command."""

from rllib.cli import main

if __name__ == "__main__":
    main()
