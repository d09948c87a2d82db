"""One file per command; each has a function `command`."""
