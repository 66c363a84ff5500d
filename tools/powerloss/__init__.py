"""Power cuts under a broker on a real file system, and the judgement of what came back."""
