"""Applies the recipe's layouts to rows: columns as the data has them in, those that encoders read out.

Read `reader` first, which chooses a row's layout; `makers` apply it, `turns` makes one turn. `values` reads what one
column holds, `unread` names what nobody reads.
"""
