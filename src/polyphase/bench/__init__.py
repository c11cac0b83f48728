"""Measuring: workloads and columns, results as JSON, comparison beyond the noise, and the report.

Imported by the command line alone: `import polyphase` needs none of it.
"""
