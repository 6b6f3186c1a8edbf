"""What everything stands on: the neutral graph, identity, errors. Imports nothing of the rest."""
