"""The packages: pyproject.toml can find them or name them, not both; all else stands there."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["ofmu_pl*"]), "ofmu_pl.configs"])
