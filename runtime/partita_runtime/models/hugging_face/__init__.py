"""Models of Hugging Face: found in a directory, a cache or the hub, checked, and loaded from safetensors.

Needs the packages of the extra hugging-face. May import `models.errors`, `models.files` and `models.policy`.
"""
