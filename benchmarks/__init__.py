"""Speed and memory against peers, always as ratios measured in one run."""
