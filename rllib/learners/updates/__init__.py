"""Parts of an update: objectives, minibatches, optimizers, target copies, sums between learners."""
