"""trtgate: a deployment toolkit and release gate for TensorRT-LLM services."""

__version__ = "0.1.0"
