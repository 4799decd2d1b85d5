"""`python -m rllm` is `rllm`."""

from rllm.cli import main

if __name__ == "__main__":
    main()
