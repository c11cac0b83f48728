"""`polyphase try`: a user's own transforms on the user's own pictures, as they are and fused."""
