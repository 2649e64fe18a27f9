"""`rllib import-sb3`: a model of Stable-Baselines3 as a run of this library."""

import click

from rllib.cli.failures import reported
from rllib.cli.imports.taken_over import (
    env_option,
    output_option,
    refuse_missing,
    settings_of,
    take_over,
    verbose_option,
)
from rllib.cli.values import LocalPath
from rllib.compat.files.sb3.model import import_sb3


@click.command("import-sb3", short_help="Take over a model of Stable-Baselines3.")
@click.argument("model", type=LocalPath())
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@env_option
@click.option("--vecnormalize", metavar="FILE", type=LocalPath(),
              help="The file that VecNormalize.save wrote.")  # fmt: skip
@output_option
@verbose_option
def command(model, words, env, vecnormalize, output, verbose) -> None:
    """Write MODEL, the zip that `model.save` of Stable-Baselines3 2.x wrote, as a run of this library: PPO, A2C, DQN,
    SAC, TQC, TD3 and DDPG. KEY=VALUE are settings that replace the model's. Nothing pickled in the zip is loaded.

    \b
    rllib import-sb3 ppo_cartpole.zip --env CartPole-v1 -o results/from_sb3
    rllib import-sb3 sac.zip --env Pendulum-v1 --vecnormalize vecnormalize.pkl -o results/pendulum
    rllib train --resume results/from_sb3 --stop steps=2e5
    """
    with reported(verbose):
        settings = settings_of(words)
        refuse_missing(model, vecnormalize)
        take_over(
            output,
            env,
            lambda path: import_sb3(model, path, env=env, vecnormalize=vecnormalize, config=settings),
        )
