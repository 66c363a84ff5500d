# The part of lz4.frame that we use; the library ships no types.

class LZ4FrameDecompressor:
    eof: bool
    unused_data: bytes | None
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...

def compress(data: bytes, compression_level: int = 0) -> bytes: ...
