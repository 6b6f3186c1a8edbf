"""What transforms: the pass catalogue, pipelines, cuts, and our own passes for each IR."""
