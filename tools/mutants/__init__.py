"""Small changes to rules of the product, one at a time; those that no test notices are listed."""
