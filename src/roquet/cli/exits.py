"""The exit codes of commands; the page on the command line lists them."""

from __future__ import annotations

from typing import Final

EXIT_DONE: Final = 0
EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_TIMEOUT: Final = 3
"""No answer; of several brokers one did not answer and what the others have was shown."""
EXIT_LEFT_OUT: Final = EXIT_TIMEOUT
EXIT_DAMAGE: Final = 4
EXIT_NOT_FOUND: Final = 5
EXIT_INTERRUPTED: Final = 130

# Servers end as Java's do: -1, -2, -3.
EXIT_UNEXPECTED: Final = 255
EXIT_CONFIGURATION: Final = 254
EXIT_INITIALIZE: Final = 253
