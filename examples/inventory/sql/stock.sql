-- The stock as it is, and as it was when reset made it.
SELECT sku, quantity, opening FROM stock ORDER BY sku
