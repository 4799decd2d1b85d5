"""Model servers that take and give token ids over HTTP, as samplers."""
