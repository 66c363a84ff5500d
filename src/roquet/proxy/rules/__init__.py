"""What may be asked and what is answered, without a socket, a clock or a broker."""
