"""Networks: specs, torsos, heads, recurrence, copies, and networks of the user's own."""
