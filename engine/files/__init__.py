"""Untrusted files of models, checked before torch reads them."""
