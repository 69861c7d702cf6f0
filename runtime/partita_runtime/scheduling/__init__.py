"""The scheduling core: who is batched with whom, on which path of vGPUs, and when.

Pure: no Ray, no asyncio, no torch, no wall clock. The live frontend and the simulator drive the same core.
All times are integer microseconds on a clock of the driver's choosing.
"""
