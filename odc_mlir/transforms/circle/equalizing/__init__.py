"""Parts of channel equalisation: sources of channels, their tracing, and pairs of layers."""
