"""What is kept: candidates while they grow, sealed releases, what is in service and how to go back."""
