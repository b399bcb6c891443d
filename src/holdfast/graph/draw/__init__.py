"""Pictures of graphs: a sketch is laid out in layers and drawn as SVG or as Mermaid text."""
