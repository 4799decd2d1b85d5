"""What `rllm` does with commands, mistakes, errors and interruptions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from rllm.cli import commands, main
from rllm.errors import BackendError, ConfigError, UnknownName
from rllm.testing.distributions import write_distribution


def run(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None], *arguments: str) -> int:
    """Run `rllm probe`, a command that does `action`, and return the exit status."""

    @click.command()
    @click.option("--colour")
    def command(colour: str | None) -> None:
        action()

    monkeypatch.setattr(sys.modules[__name__], "probe", command, raising=False)
    monkeypatch.setitem(commands.TABLE, "probe", (f"{__name__}:probe", "A command of this test."))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    with pytest.raises(SystemExit) as ended:
        main(["probe", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def failing(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (UnknownName("no sandbox is called 'x'\nor y"), 2, "error: no sandbox is called 'x' or y\n"),
        (BackendError("out of memory"), 1, "error: out of memory\n"),
        (ConfigError("lr is -1", "no key\nis called x"), 2, "error: lr is -1\nerror: no key is called x\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (click.ClickException("no"), 1, "error: no\n"),
    ],
)
def test_an_error_is_one_line_and_an_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, status: int, text: str
) -> None:
    assert run(monkeypatch, failing(error)) == status
    captured = capsys.readouterr()
    assert captured.err.lstrip("\n") == text
    assert captured.out == ""


def test_a_command_that_ends_well_exits_with_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, lambda: None) == 0


def test_a_command_may_choose_its_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, failing(SystemExit(5))) == 5
    assert run(monkeypatch, failing(click.exceptions.Exit(6))) == 6


def test_a_mistake_in_our_own_code_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        run(monkeypatch, failing(ZeroDivisionError()))


def test_a_mistyped_option_is_told_what_it_might_have_been(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, lambda: None, "--color=red") == 2
    text = capsys.readouterr().err
    assert "--color" in text
    assert "Did you mean" in text
    assert "'--colour'" in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(("typed", "meant"), [("evla", "eval"), ("plugin", "plugins"), ("Doctor", "doctor")])
def test_a_mistyped_command_is_told_what_it_might_have_been(
    capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([typed])
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err == f"error: no command is called {typed!r}; did you mean {meant!r}? (see rllm --help)\n"
    )


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    import importlib.metadata

    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"rllm {importlib.metadata.version('rllm-core')}\n"


@pytest.mark.parametrize("name", commands.TABLE)
def test_every_command_of_the_table_has_help(capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"Usage: rllm {name}")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    code = "from rllm.cli import main; main(['--help'])"
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "$1" | true', sys.executable, code], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_commands_of_plugins_are_in_the_help_with_their_distribution(
    rllm_process: Callable[..., Any], site: Path
) -> None:
    write_distribution(
        site, "rllm-far", summary="A window", entry_points={"rllm.commands": {"view": "far:no", "eval": "far:no"}}
    )
    result = rllm_process("--help")
    assert "Commands of plugins:\n  view  A window (rllm-far)\n" in result.out
    assert result.out.count("  eval ") == 1


def test_a_command_that_only_a_hook_returns_can_be_invoked(rllm_process: Callable[..., Any], site: Path) -> None:
    source = (
        "import click\nfrom rllm.hookspecs import hookimpl\n"
        "@click.command('hooked')\ndef hooked():\n    click.echo('by hook')\n"
        "@hookimpl\ndef rllm_commands():\n    return [hooked]\n"
    )
    write_distribution(site, "rllm-far", entry_points={"rllm": {"far": "far_hook"}}, modules={"far_hook": source})
    result = rllm_process("hooked")
    assert (result.status, result.out) == (0, "by hook\n")


def test_a_command_that_two_plugins_offer_names_both(rllm_process: Callable[..., Any], site: Path) -> None:
    for name in ("rllm-one", "rllm-two"):
        write_distribution(site, name, entry_points={"rllm.commands": {"view": f"{name[5:]}:command"}})
    result = rllm_process("view")
    assert result.status == 1
    assert "command 'view' is offered more than once" in result.err
    assert "rllm-one" in result.err
    assert "rllm-two" in result.err


@pytest.mark.parametrize(
    ("source", "requires", "text"),
    [
        ("import no_such_module", (), "ModuleNotFoundError"),
        ("command = 3", (), "expected a click command, found 3"),
        ("raise RuntimeError", ("rllm-core>=99",), "it needs rllm-core>=99"),
        ("raise SystemExit(0)", (), "SystemExit: 0"),
    ],
)
def test_a_plugins_command_that_cannot_be_loaded_is_one_line(
    rllm_process: Callable[..., Any], site: Path, source: str, requires: tuple[str, ...], text: str
) -> None:
    write_distribution(
        site,
        "rllm-far",
        entry_points={"rllm.commands": {"view": "far_view:command"}},
        modules={"far_view": source},
        requires=requires,
    )
    result = rllm_process("view")
    assert result.status == 1
    assert result.err.startswith("error: command 'view' of plugin 'view' of rllm-far 1.0: ")
    assert text in result.err
    assert result.err.count("\n") == 1
