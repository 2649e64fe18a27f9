"""What a user's own code may hook into: a class of methods that are called along the way.

    class Print(DefaultCallbacks):
        def on_train_result(self, *, algorithm, result, **kwargs):
            print(result["episode_reward_mean"])

    PPOConfig().callbacks(Print)

Names and arguments are Ray 2.6's; all are keywords, and `**kwargs` takes those that may come later. The driver has one
object of the class and every worker has its own: what they have to tell each other goes into an episode's
`custom_metrics`, which come back in the results as name_mean, name_min and name_max.
"""

# Ray's hooks that are called for every step, or that belong to parts that are not there.
NOT_CALLED = (
    "on_create_policy",
    "on_episode_created",
    "on_episode_start",
    "on_episode_step",
    "on_postprocess_trajectory",
    "on_sub_environment_created",
)


class DefaultCallbacks:
    """Does nothing; override what you need."""

    # ------------------------------------------------------------------ in the driver

    def on_algorithm_init(self, *, algorithm, **kwargs) -> None:
        """Once, when the algorithm is built."""

    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs) -> None:
        """Before each update.

        Args:
            policy: what is trained.
            train_batch: the SampleBatch; changes to it are learned from.
            result: a dict; what is put in here joins the learner's statistics.
        """

    def on_train_result(self, *, algorithm, result, **kwargs) -> None:
        """After each iteration; what is put into the result is logged with it."""

    def on_evaluate_start(self, *, algorithm, **kwargs) -> None:
        """Before each evaluation."""

    def on_evaluate_end(self, *, algorithm, evaluation_metrics, **kwargs) -> None:
        """After each evaluation; evaluation_metrics is {"evaluation": statistics}."""

    def on_workers_recreated(self, *, algorithm, worker_set, worker_ids, is_evaluation, **kwargs) -> None:
        """After dead workers were replaced.

        Args:
            algorithm: whose they are.
            worker_set: the set they belong to.
            worker_ids: their indices, from 1.
            is_evaluation: whether they evaluate.
        """

    # ------------------------------------------------------------------ in the workers

    def on_episode_end(self, *, worker, episode, env_index, **kwargs) -> None:
        """For each episode that ended in a fragment, when the fragment is full.

        Args:
            worker: the RolloutWorker; its environments are in `worker.stream`.
            episode: the finished Episode; put numbers into its `custom_metrics`.
            env_index: of the environment within the worker.
        """

    def on_sample_end(self, *, worker, samples, **kwargs) -> None:
        """When a fragment is complete; `samples` is the SampleBatch that is sent, its columns still writable."""


def callbacks_problem(callbacks_class) -> str | None:
    """Which rule the class breaks, as a sentence; None if it keeps them all."""
    if callbacks_class is None:
        return None
    if not isinstance(callbacks_class, type) or not issubclass(callbacks_class, DefaultCallbacks):
        return (
            f"callbacks_class={callbacks_class!r} must be a class derived from DefaultCallbacks. "
            "Use .callbacks(MyCallbacks) with `from rllib import DefaultCallbacks`."
        )
    unheard = [name for name in NOT_CALLED if hasattr(callbacks_class, name)]
    if unheard:
        hooks = [name for name in vars(DefaultCallbacks) if name.startswith("on_")]
        return (
            f"callbacks_class={callbacks_class.__name__} has {', '.join(unheard)}, which nothing calls here. "
            f"Use those that are called: {', '.join(hooks)}."
        )
    return None
