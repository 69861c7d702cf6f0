"""What every search needs: deadlines, tolerances, and HiGHS for mixed-integer linear models.

May import no other folder.
"""
