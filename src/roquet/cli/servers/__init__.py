"""`roquet namesrv`, `broker`, `relay` and `dev`."""
