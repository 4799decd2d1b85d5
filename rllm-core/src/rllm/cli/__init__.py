"""The command line: `main` runs a command and turns what it raises into one line and an exit status.

0 done   1 failed   2 the request is wrong   130 interrupted
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `rllm`; always ends in `SystemExit`."""
    import click

    from rllm.cli.commands import command
    from rllm.errors import ConfigError, RllmError, one_line

    try:
        status = command.main(arguments, prog_name="rllm", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        status = 2
    except click.ClickException as error:
        _complain(_worded(error))
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
        status = 130
    except ConfigError as error:
        for fault in error.faults:
            _complain(" ".join(fault.split()))
        status = error.exit_status
    except RllmError as error:
        _complain(one_line(error))
        status = error.exit_status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status if type(status) is int else 0)


def _complain(text: str) -> None:
    print(f"error: {text}", file=sys.stderr)


def _worded(error: object) -> str:
    import click

    assert isinstance(error, click.ClickException)
    text = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{text} (see {error.ctx.command_path} --help)"
    return text
