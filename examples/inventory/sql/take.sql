-- Takes quantity of sku out of the stock. 0 rows: there is not that much (the third parameter is quantity again), or no such article.
UPDATE stock SET quantity = quantity - ? WHERE sku = ? AND quantity >= ?
