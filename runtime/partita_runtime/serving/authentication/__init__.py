"""Which clients a frontend answers, for every protocol.

May import `serving.deploy` and `serving.protocol`.
"""
