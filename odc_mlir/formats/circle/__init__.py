"""Circle and TFLite model files.

``reader.read_model`` turns a file into the records of ``model``; ``writer.write_model`` and ``writer.save_model`` turn
them into a Circle file. ``schema`` holds the tables, enums and unions that both are driven by.
"""
