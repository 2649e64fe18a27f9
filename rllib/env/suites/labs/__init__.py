"""Isaac Lab and mjlab: simulators that step thousands of robots as torch tensors."""
