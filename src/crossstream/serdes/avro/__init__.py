"""Avro: schemas, their resolution, and columns of records without a Python call for each."""
