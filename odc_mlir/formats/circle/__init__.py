"""Circle and TFLite files: ``reader.read_model`` and ``writer.write_model`` convert them to records of ``model``."""
