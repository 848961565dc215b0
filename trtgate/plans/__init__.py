"""What to capture: histograms, the cost of a step, the exact choice of buckets, and the plan that joins them."""
