"""The broker's API: typed requests, results and refusals; what every front calls.

Nothing here knows a transport: no field names of a protocol, no response codes, no connections.
"""
