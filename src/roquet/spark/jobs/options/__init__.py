"""The jobs' options: names, values, defaults, meanings. Pure, and quick to import."""
