"""The commands, by families. Each module is loaded when one of its commands is called."""
