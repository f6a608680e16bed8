package main

import (
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"
)

// embedded are a Kafka broker and a Redis inside this process, on loopback.
type embedded struct {
	kafka *kfake.Cluster
	redis *miniredis.Miniredis
}

func startEmbedded(minSession time.Duration) (*embedded, error) {
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(minSession))
	if err != nil {
		return nil, fmt.Errorf("demo: start the embedded broker: %w", err)
	}
	r := miniredis.NewMiniRedis()
	r.ClockTTL(true) // keys expire as in a real Redis
	if err := r.Start(); err != nil {
		k.Close()
		return nil, fmt.Errorf("demo: start the embedded redis: %w", err)
	}
	return &embedded{kafka: k, redis: r}, nil
}

func (e *embedded) redisURL() string { return "redis://" + e.redis.Addr() }

func (e *embedded) close() {
	e.redis.Close()
	e.kafka.Close()
}
