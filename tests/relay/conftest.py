"""Tests in this folder run inside the Relay TVM: one process cannot hold two TVMs."""

from engine.relay.boot import boot

boot()
