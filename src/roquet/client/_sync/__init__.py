"""What the blocking client does otherwise than the asyncio one; see sync.py."""
