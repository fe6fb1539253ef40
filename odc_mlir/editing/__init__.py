"""Editing of models: cutting, resizing, changing parameters, and reducing a failing model."""
