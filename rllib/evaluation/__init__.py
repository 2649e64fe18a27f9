"""From environments to SampleBatches: rollout workers, the set of them, and evaluation."""
