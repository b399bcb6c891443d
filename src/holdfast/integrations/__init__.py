"""Bridges to other libraries. Each needs an extra of the same name: ``pip install holdfast[otel]``."""
