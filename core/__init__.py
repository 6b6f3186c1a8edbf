"""The base of everything: the neutral graph, identity, errors. Imports no other part."""
