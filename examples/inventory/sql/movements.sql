-- Every movement. They are counted by message in Go, where ids are compared byte by byte on each database.
SELECT msg_id, sku, delta FROM stock_movement
