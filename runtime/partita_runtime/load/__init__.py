"""Open-loop load over the Open Inference Protocol: requests leave on schedule, whatever became of those before."""
