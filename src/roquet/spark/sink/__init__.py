"""The sink's rules: which queue a row goes to, which key it has, what is sent again."""
