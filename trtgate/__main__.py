"""`python -m trtgate` is the same as `trtgate`."""

from trtgate.cli import main

main()
