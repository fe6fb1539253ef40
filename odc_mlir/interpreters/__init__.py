"""Running IR after any stage, to compare it with the stage before; the reference, not the runtime."""
