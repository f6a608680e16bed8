-- Writes down that a message changed the stock of sku by delta.
INSERT INTO stock_movement (msg_id, sku, delta) VALUES (?, ?, ?)
