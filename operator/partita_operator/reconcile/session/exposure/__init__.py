"""The addresses by which clients reach a session: Kubernetes objects that the session owns, and the condition Exposed.

`service` makes the Service and its EndpointSlices, `ingress` and `gateway` the objects of spec.expose, which `policy`
limits. `public` says what is missing for the public address. `decision` compares all of them with what there is. May
import `reconcile` and `reconcile.session.client_access`.
"""
