"""What serves requests: model execution, the scheduling core, its simulator, and the Ray Serve application."""
