-- Ends what migrate_lock.sql took.
-- :name  as there
-- Returns nothing.
DO RELEASE_LOCK(CONCAT('idemq ', MD5(CONCAT(DATABASE(), ' ', :name))))
