"""What the evidence means: statistics, hard gates and the judge."""
