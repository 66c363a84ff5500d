"""HTTP: pages, the JSON API, sessions and what guards them."""
