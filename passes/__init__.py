"""The pass catalogue, pipelines, cuts, linters, searches, and relascope's passes for each IR."""
