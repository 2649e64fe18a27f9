"""PPO on CartPole in torch, whose rollouts stay on a device: environment steps a second, beside rollouts of arrays.

The same settings with 64, 1,024 and 4,096 environments: CartPole in torch, and gymnasium's vector implementation in
numpy with our numpy network; 32 steps, 4 epochs of 8 minibatches, two 64x64 tanh towers. "sampling" is without updates.
On a GPU (--device cuda) the environments in numpy act on the CPU, and their batches are sent to the learner there.
"""

import functools
import time

import torch
from measure import Row, alternate, arguments, machine, table
from ppo_throughput import training_rate

from rllib import PPOConfig
from rllib.env.tasks.torch_cartpole import TorchCartPole

FRAGMENT, EPOCHS, MINIBATCHES = 32, 4, 8


def build(envs: int, device: str, on_device: bool):
    """The algorithm, whose rollouts are tensors on the device, or arrays."""
    config = PPOConfig().rollouts(num_rollout_workers=0, num_envs_per_worker=envs, rollout_fragment_length=FRAGMENT)
    if on_device:
        config.environment(TorchCartPole, env_config={"device": device})
    else:
        config.environment("CartPole-v1").rollouts(gym_env_vectorize_mode="vector_entry_point")
    batch = envs * FRAGMENT
    model = {"fcnet_hiddens": [64, 64]}
    return (
        config.training(
            train_batch_size=batch, sgd_minibatch_size=batch // MINIBATCHES, num_sgd_iter=EPOCHS, model=model
        )
        .resources(num_gpus=int(device == "cuda"))
        .build()
    )


def sampling_rate(algo, iterations: int) -> float:
    """Steps a second, sampled alone."""
    started = time.perf_counter()
    for _ in range(iterations):
        algo.sample(algo.config.train_batch_size)
    if algo.config.num_gpus:
        torch.cuda.synchronize()
    return iterations * algo.config.train_batch_size / (time.perf_counter() - started)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], rounds=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of environments and learner")
    parser.add_argument("--envs", type=int, nargs="+", default=[64, 1024, 4096], help="numbers of environments")
    parser.add_argument("--steps", type=int, default=500_000, help="of each side in each round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch on the CPU")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(machine())
    print(f"device {options.device}, {options.threads} threads of torch")
    made = []
    for envs in options.envs:
        iterations = max(1, options.steps // (envs * FRAGMENT))
        for what, rate in (("training", training_rate), ("sampling", sampling_rate)):
            algos = {"ours": build(envs, options.device, True), "numpy": build(envs, options.device, False)}
            try:
                sides = {name: functools.partial(rate, algo, iterations) for name, algo in algos.items()}
                found = alternate(options.rounds, **sides)
            finally:
                for algo in algos.values():
                    algo.stop()
            made.append(Row.of(found, "numpy", f"{envs} environments, {what}", "env steps/s", peer_name="arrays"))
    table(made)


if __name__ == "__main__":
    main()
