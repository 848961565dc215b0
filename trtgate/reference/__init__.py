"""The embedded reference runtime: a small decoder served as by `trtllm-serve`; only this package imports torch."""
