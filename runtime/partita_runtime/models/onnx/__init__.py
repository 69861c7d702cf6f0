"""Reads .onnx files, cuts their graphs, and runs the parts with ONNX Runtime.

Needs the packages `onnx` and `onnxruntime`. May import `models.errors`, `models.layers` and `models.standard_inputs`.
"""
