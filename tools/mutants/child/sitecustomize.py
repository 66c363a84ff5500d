"""Processes that a test starts ignore the setting as well: Python imports this where they start."""

import tools.mutants.ignored_setting  # noqa: F401
