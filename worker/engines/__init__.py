"""One file per engine; the only importers of torch and onnxruntime."""
