"""How much a broker carries that does little: clients, topics, churn."""
