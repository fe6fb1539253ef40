"""Element types of the codes that instructions compute with, in the order of their numbers."""

TYPES = ("u8", "i8", "i16", "i32")
TYPE_BYTES = (1, 1, 2, 4)
