-- What is left of each article. opening is what reset put there, so that check can say what should be left.
CREATE TABLE IF NOT EXISTS stock (
    sku      VARCHAR(64) NOT NULL PRIMARY KEY,
    quantity BIGINT      NOT NULL CHECK (quantity >= 0),
    opening  BIGINT      NOT NULL
)
