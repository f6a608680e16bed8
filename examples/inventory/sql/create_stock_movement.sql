-- Each effect that took place. There is on purpose no key on msg_id: a message that is applied twice leaves two rows, and check
-- counts them. A table of your own would have one.
CREATE TABLE IF NOT EXISTS stock_movement (
    msg_id   VARCHAR(255) NOT NULL,
    sku      VARCHAR(64)  NOT NULL,
    delta    BIGINT       NOT NULL,
    moved_at TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP
)
