"""What authors write, and the workflow actor that runs it."""
