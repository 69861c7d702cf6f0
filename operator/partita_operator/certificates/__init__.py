"""Certificates: issuing them, and renewing those of the processes of sessions without a gap.

May import no other folder.
"""
