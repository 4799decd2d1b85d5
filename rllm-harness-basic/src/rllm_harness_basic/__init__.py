"""Agents for rllm that need no other program and no sandbox."""
