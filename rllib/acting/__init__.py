"""Actions of a trained policy outside of training."""
