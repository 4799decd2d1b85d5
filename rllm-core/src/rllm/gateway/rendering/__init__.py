"""Between messages and token ids: chat templates, model families, and reading what was sampled."""
