"""What is lost, odd or not obeyed in rows with conversations.

In: a row with its rendered conversation, a `ChatCase`. Out: each `Loss` with what is to be said of it. Read first:
`case`, then `lost_content`.
"""
