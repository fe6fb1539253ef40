"""What the NPU can run: rules and the checks behind them."""
