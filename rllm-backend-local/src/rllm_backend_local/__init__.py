"""Train and sample on this machine with torch and transformers: a backend for rllm."""
