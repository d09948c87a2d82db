"""Files for registries of packages and tools say what the project says."""

import json
import re
import tomllib
from pathlib import Path

import yaml

from holdfast.cli import command_names
from holdfast.cli.options import TABLES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_conda_recipe_has_the_version_and_dependencies_of_the_project() -> None:
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "meta.yaml").read_text(encoding="utf-8"))
    assert recipe["package"]["version"] == PROJECT["version"]
    run = [one.replace(" ", "") for one in recipe["requirements"]["run"]]
    assert run == [f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]]


def test_the_tool_server_is_registered_as_it_is() -> None:
    server = json.loads((ROOT / "deploy" / "server.json").read_text(encoding="utf-8"))
    (package,) = server["packages"]
    assert server["version"] == package["version"] == PROJECT["version"]
    extra = re.fullmatch(r"holdfast\[(\w+)\]", package["runtime_arguments"][0]["value"])
    assert extra is not None
    assert extra[1] in PROJECT["optional-dependencies"]
    assert package["package_arguments"][0]["value"] == "mcp"
    assert "mcp" in command_names()
    assert f"<!-- mcp-name: {server['name']} -->" in (ROOT / "README.md").read_text(encoding="utf-8")
    (data,) = [one for one in package["package_arguments"] if one.get("value_hint") == "data"]
    assert data["description"].lower() == f"{TABLES.lower()}."
