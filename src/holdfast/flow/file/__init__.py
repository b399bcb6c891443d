"""The YAML file of a flow: read into nodes that know their place, checked by one table of keys, and loaded."""
