"""Circle and TFLite files, converted to records of ``model`` by ``reader`` and back by ``writer``."""
