"""From a graph to boxes, curves and colours, and to files."""
