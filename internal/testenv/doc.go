// Package testenv finds or starts the real services that the tests of this module run against.
//
// A shared service is found, in this order, by its environment variable, as a container where a Docker daemon answers, or by
// starting the program that is installed, on a free loopback port in a temporary directory. It is started at most once per test
// process, and each test gets a space of its own in it:
//
//	service        function       environment variable      what a test has to itself
//	redis          Redis          IDEMQ_TEST_REDIS          an empty database (SELECT n)
//	redis-cluster  RedisCluster   IDEMQ_TEST_REDIS_CLUSTER  nothing: use keys made with Name
//	postgres       Postgres       IDEMQ_TEST_POSTGRES       an empty database
//	mariadb        MariaDB        IDEMQ_TEST_MARIADB        an empty database
//	kafka          Kafka          IDEMQ_TEST_KAFKA          nothing: use topics and groups made with Name
//	rocketmq       RocketMQ       IDEMQ_TEST_ROCKETMQ       nothing: use topics and groups made with Name, and - for each dot
//
// A private server (OwnRedis, OwnRedisCluster, OwnRedisSentinel, OwnPostgres, OwnMariaDB, OwnKafka,
// OwnRocketMQ) belongs to one test, which
// may kill it, freeze it, wipe it and start it again. It is always the installed program: a server that somebody gave by URL is
// not ours to kill.
//
// A service that cannot be had skips the test and says why. More environment variables:
//
//	IDEMQ_TEST_REQUIRE   services, comma-separated, whose absence fails the test instead ("docker" too)
//	IDEMQ_TEST_WITHOUT   services, comma-separated, that are not looked for
//	IDEMQ_TEST_VIA       "docker" or "local": how to start shared services, instead of docker where it answers, else local
//	IDEMQ_TEST_SKIPS     a file that collects the reasons of skips, for a summary at the end
//	IDEMQ_IMAGE_REDIS, IDEMQ_IMAGE_POSTGRES, IDEMQ_IMAGE_MARIADB, IDEMQ_IMAGE_KAFKA   container images
//	IDEMQ_KAFKA_VERSION  which Kafka to fetch from Maven; IDEMQ_ROCKETMQ_VERSION likewise
//
// Nothing stays behind: a small process of our own (reaper.go) outlives the test process, however that one ends, and then kills
// what was started and removes the files.
package testenv
