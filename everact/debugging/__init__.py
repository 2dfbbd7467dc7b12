"""``everact debug``: a run's history is replayed, and stops at one of its events, in the user's code."""
