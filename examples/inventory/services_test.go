package main

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
	"github.com/idemq/idemq/internal/testenv"
)

// databases that the program runs on beside SQLite.
var databases = map[string]func(testing.TB) string{"postgres": testenv.Postgres, "mariadb": testenv.MariaDB}

func TestStock_OnRealDatabases_NeverGoesBelowZeroAndKeepsEachMovement(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			db, err := sqlstore.Open(url(t))
			require.NoError(t, err)
			defer db.Close() //nolint:errcheck // the database is dropped
			testStock(t, db)
		})
	}
}

// TestProgram_OnRealServices_AppliesEachOrderOnce is the way of the README: reset, produce, two consumers, check.
func TestProgram_OnRealServices_AppliesEachOrderOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Kafka; left out by -short")
	}
	for name, url := range databases {
		for _, mode := range []string{"transactional", "logged"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				group := testenv.Name(t)
				flags := []string{
					"--brokers", strings.Join(testenv.Kafka(t), ","), "--topic", group + ".orders", "--group", group, "--redis", testenv.Redis(t), "--db", url(t),
					"--mode", mode, "--session", "1s", "--lease", "3s", "--workers", "4",
				}
				succeed(t, with("reset", flags, "--stock", "200", "--skus", "5")...)
				succeed(t, with("produce", flags, "--orders", "400", "--duplicates", "0.5", "--skus", "5")...)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan int, 2)
				var logs [2]bytes.Buffer
				for i := range logs {
					go func() { ended <- run(ctx, with("consume", flags), &logs[i], &logs[i]) }()
				}
				got := oneObject(t, []byte(succeed(t, with("check", flags, "--json", "--wait", "60s")...)))
				stop()
				for range logs {
					require.Zero(t, <-ended, "%s\n%s", &logs[0], &logs[1])
				}
				require.EqualValues(t, 400, got["orders"])
				require.Zero(t, got["lost"])
				require.Zero(t, got["twice"])
				require.Zero(t, got["pending"])
				require.Positive(t, got["dead"])
				require.Equal(t, got["stock_expected"], got["stock_actual"])
				succeed(t, with("reset", flags)...)
			})
		}
	}
}

func TestOpen_WhatGoRedisLogs_IsToldAtDebug(t *testing.T) {
	var log bytes.Buffer
	s := services{Group: "inventory", Mode: dedupe.Logged, DB: "sqlite:" + filepath.Join(t.TempDir(), "x.db"), Redis: "redis://127.0.0.1:1", Lease: 12 * time.Second}
	p, err := s.open(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	require.Error(t, p.redis.Ping(t.Context()).Err())
	p.close()
	require.Contains(t, log.String(), `level=DEBUG msg=go-redis says="`)
}
