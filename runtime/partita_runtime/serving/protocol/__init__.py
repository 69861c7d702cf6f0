"""The formats of the Open Inference Protocol v2 (JSON, binary, images, gRPC) and the OpenAPI document. Pure.

May import no other folder.
"""
