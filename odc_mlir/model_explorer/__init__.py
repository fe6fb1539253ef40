"""Models and packages in Model Explorer, Google's viewer: ``model-explorer --extensions=odc_mlir.model_explorer``."""
