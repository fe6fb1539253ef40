"""Editing of models on request: cutting, resizing, changing parameters, and reducing a failing model."""
