-- Ends what migrate_lock.sql took.
DO RELEASE_LOCK(CONCAT('idemq ', MD5(CONCAT(DATABASE(), ' ', :name))))
