"""Ports, routes, limits of bodies, overload, and the registration at name servers."""
