"""`rllm plugins new` writes a package that installs, is found, and passes its kit."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from rllm.errors import ConfigError
from rllm.plugins.scaffold import write_package

KINDS = ("algorithm", "backend", "benchmark", "harness", "sandbox", "tracker")


def python(interpreter: Path, *arguments: str, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "RLLM_PLUGINS"}
    done = subprocess.run(
        [str(interpreter), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment above this one, with a new package of each kind installed by pip."""
    root = tmp_path_factory.mktemp("scaffold")
    venv.create(root / "venv", with_pip=False)
    interpreter = root / "venv" / "bin" / "python"
    purelib = Path(
        python(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=root).strip()
    )
    # addsitedir, not a bare line, so that this environment's own editable installations count there too
    (purelib / "outer.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    folders = [str(write_package(kind, "my-thing", root)) for kind in KINDS]
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    python(interpreter, "-m", "pip", "install", *offline, *folders, cwd=root)
    return root


@pytest.mark.slow
def test_every_new_package_is_found_once_installed(installed: Path) -> None:
    interpreter = installed / "venv" / "bin" / "python"
    code = "from rllm.cli import main; main(['plugins', 'list', '--json'])"
    records = json.loads(python(interpreter, "-c", code, cwd=installed))["plugins"]
    found = {each["distribution"]: each for each in records}
    for kind in KINDS:
        record = found[f"rllm-{kind}-my-thing"]
        name = "my-thing"
        assert record["contributions"] == {kind: [name]}
        assert record["failures"] == []
        load = f"from rllm import plugins; print(plugins.registry({kind!r}).load({name!r}).__module__)"
        assert python(interpreter, "-c", load, cwd=installed).strip() == f"rllm_{kind}_my_thing.{kind}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_new_package_passes_the_kit_of_its_kind(installed: Path, kind: str) -> None:
    interpreter = installed / "venv" / "bin" / "python"
    folder = installed / f"rllm-{kind}-my-thing"
    told = python(
        interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error", cwd=folder
    )
    assert "passed" in told
    assert "skipped" not in told


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_package_is_complete_and_names_itself_throughout(tmp_path: Path, kind: str) -> None:
    folder = write_package(kind, "two-words", tmp_path)
    package = f"rllm_{kind}_two_words"
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert set(files) == {
        "CHANGELOG.md",
        "README.md",
        "pyproject.toml",
        f"src/{package}/__init__.py",
        f"src/{package}/{kind}.py",
        f"src/{package}/plugin.py",
        f"src/{package}/py.typed",
        "tests/test_two_words.py",
    }
    for path, text in files.items():
        assert "xample" not in text, path
        assert "$" not in text, path
        if path.endswith(".py"):
            compile(text, path, "exec")


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("sandbx", "mine", "no kind is called 'sandbx'; did you mean 'sandbox'"),
        ("sandbox", "My Thing", "cannot be a name"),
        ("sandbox", "../up", "cannot be a name"),
        ("sandbox", "class", "a word of Python"),
        ("sandbox", "taken", "exists"),
    ],
)
def test_what_cannot_be_a_package_is_refused_and_nothing_is_written(
    tmp_path: Path, kind: str, name: str, text: str
) -> None:
    (tmp_path / "rllm-sandbox-taken").mkdir()
    with pytest.raises(ConfigError, match=text):
        write_package(kind, name, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["rllm-sandbox-taken"]
