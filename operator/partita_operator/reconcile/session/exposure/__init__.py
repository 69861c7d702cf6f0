"""The addresses by which clients reach a session: Kubernetes objects that the session owns, and the condition Exposed.

`service` makes the Service and its EndpointSlices. `decision` compares them with what there is. May import `reconcile`.
"""
