"""The paper's table and claims, measured: each experiment has a small size for tests and a full one for the docs."""

from holdfast.lab.experiments.page import EXPERIMENTS, NAMES, reproduce, write_page

__all__ = ["EXPERIMENTS", "NAMES", "reproduce", "write_page"]
