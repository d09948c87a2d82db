"""`python -m holdfast`, where the script is not on the path."""

from holdfast.cli import main

main()
