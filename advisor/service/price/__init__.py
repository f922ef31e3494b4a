"""The one price: waiting jobs valued by what they save for a dollar, and moved while the budget lasts."""
