"""What was measured: the machine, proven starts, and pairs of runs under load."""
