"""`rllib import-ray`: a checkpoint of Ray RLlib as a run of this library."""

import click

from rllib.cli.failures import reported, user_input
from rllib.cli.imports.taken_over import output_option, refuse_missing, settings_of, take_over, verbose_option
from rllib.cli.values import LocalPath
from rllib.compat.files.ray_checkpoints.model import environment_of, import_ray
from rllib.sample_batch import DEFAULT_POLICY


@click.command("import-ray", short_help="Take over a checkpoint of Ray RLlib.")
@click.argument("checkpoint", type=LocalPath())
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--env", metavar="ENV", help="Environment that it was trained in [default: the one that it names].")
@click.option("--policy", default=DEFAULT_POLICY, metavar="ID", help="Which one, where CHECKPOINT holds several.")
@output_option
@verbose_option
def command(checkpoint, words, env, policy, output, verbose) -> None:
    """Write CHECKPOINT, the directory that `algorithm.save()` of Ray RLlib wrote, as a run of this library: PPO,
    IMPALA, APPO, A2C, A3C, PG, DQN and SAC with Ray's networks of vectors, of Ray 2.0 to 2.60. KEY=VALUE are settings
    that replace the checkpoint's. Nothing pickled in it is loaded.

    \b
    rllib import-ray ~/ray_results/PPO_CartPole-v1_.../checkpoint_000010 -o results/from_ray
    rllib train --resume results/from_ray --stop steps=2e5
    """
    with reported(verbose):
        settings = settings_of(words)
        refuse_missing(checkpoint)
        with user_input():
            env = env or environment_of(checkpoint, policy)
        take_over(output, env, lambda path: import_ray(checkpoint, path, env=env, policy_id=policy, config=settings))
