-- Puts an article on the shelf.
INSERT INTO stock (sku, quantity, opening) VALUES (?, ?, ?)
