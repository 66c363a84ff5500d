"""Looking after a store from outside a broker: check, dump, repair, backup."""
