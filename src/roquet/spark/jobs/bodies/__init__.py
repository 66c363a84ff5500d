"""Bodies of messages parsed into a column, by a schema of Avro or Protobuf."""
