package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// clientLog brings the log of go-redis to slog. DEBUG, because each refused connection is a line; redisstore tells the outage.
type clientLog struct{ *slog.Logger }

func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	l.DebugContext(ctx, "redis client", "said", fmt.Sprintf(format, v...))
}

// go-redis has one log for the process. Set it before the first client is made.
func Example_clientLog() {
	redis.SetLogger(clientLog{slog.Default()})
}
