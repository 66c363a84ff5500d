"""The relay beside one hop of bare asyncio, measured."""
