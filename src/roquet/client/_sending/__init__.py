"""What producers do with one message: compose, encode, time, place, batch. Mostly pure."""
