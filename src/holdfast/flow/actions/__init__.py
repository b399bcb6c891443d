"""What the steps of a flow do in the world: shell commands, HTTP requests and Python functions."""
