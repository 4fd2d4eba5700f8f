"""The report: what a training did, as one page. This room draws what it is given and reads nothing else."""
