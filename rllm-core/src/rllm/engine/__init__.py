"""Run one rollout (`rollout`), or many (`pool`): the same path for evaluation and for training."""
