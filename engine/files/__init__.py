"""Files of models as a stranger's: what stands in them is checked before torch reads it."""
