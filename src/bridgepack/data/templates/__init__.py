"""What a chat template is, learned once: the markers of turns, and what small conversations show of it.

In: a tokenizer with its chat template, and a recipe's settings. Out: `TemplateFacts`, and errors about templates that
cannot do what the recipe asks. Read first: `facts`, then `markers` and `probe`.
"""
