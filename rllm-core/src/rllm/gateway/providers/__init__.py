"""Model providers that are sent messages and send messages back, in whichever protocol they speak."""
