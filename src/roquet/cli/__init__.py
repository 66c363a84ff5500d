"""The command line. Commands import what they need when they run: start-up is felt."""
