"""Protobuf: messages of a registry as columns."""
