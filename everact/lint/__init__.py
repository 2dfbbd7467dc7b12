"""``everact lint``: the static check of workflow code as a command."""
