package rocketmq

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// The client has one log for the process, in a variable that nothing guards, so it is set before anything can write to it. A program that
// wants it elsewhere calls rlog.SetLogger before it uses any client.
func init() { rlog.SetLogger(clientLog{}) }

// clientLogger is where the client's log goes: to the logger of the first consumer in the process, before that to slog's default.
var clientLogger atomic.Pointer[slog.Logger]

func routeLog(log *slog.Logger) { clientLogger.CompareAndSwap(nil, log) }

// clientLog writes what the client says, without payloads. What is routine there is Debug here.
type clientLog struct{}

// routine are warnings about what this package does on purpose.
var routine = map[string]bool{
	"consumeMessage Orderly return not OK":                               true, // each retry in place
	"the cached message count exceeds the threshold, so do flow control": true,
	"the cached message size exceeds the threshold, so do flow control":  true,
	"the queue's messages span too long, so do flow control":             true,
	"processQueue is dropped without process consume result.":            true, // each drain and rebalance
	"the message queue not be able to consume, because it's dropped.":    true,
	"the message queue not locked, so consume later":                     true,
}

func (l clientLog) Debug(msg string, fields map[string]interface{}) {
	l.write(slog.LevelDebug-4, msg, fields)
}

func (l clientLog) Info(msg string, fields map[string]interface{}) {
	l.write(slog.LevelDebug, msg, fields)
}

func (l clientLog) Warning(msg string, fields map[string]interface{}) {
	level := slog.LevelWarn
	if routine[msg] {
		level = slog.LevelDebug
	}
	l.write(level, msg, fields)
}

func (l clientLog) Error(msg string, fields map[string]interface{}) {
	l.write(slog.LevelError, msg, fields)
}

// Fatal does not end the process, as the client's own logger would.
func (l clientLog) Fatal(msg string, fields map[string]interface{}) {
	l.write(slog.LevelError, msg, fields)
}

// Level and OutputPath are the Logger's matter.
func (clientLog) Level(string)            {}
func (clientLog) OutputPath(string) error { return nil }

func (clientLog) write(level slog.Level, msg string, fields map[string]interface{}) {
	ctx, log := context.Background(), clientLogger.Load()
	if log == nil {
		log = slog.Default()
	}
	if !log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("client", "rocketmq-client-go")}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if value, ok := printable(fields[name]); ok {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	log.LogAttrs(ctx, level, cut(msg), attrs...)
}

// printable lets through the kinds that have no payload: the client logs whole messages, which have.
func printable(v interface{}) (string, bool) {
	switch v := v.(type) {
	case string:
		return cut(v), true
	case error:
		return cut(v.Error()), true
	case bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64, time.Duration, time.Time:
		return fmt.Sprint(v), true
	case primitive.MessageQueue:
		return v.String(), true
	case *primitive.MessageQueue:
		return v.String(), true
	}
	return "", false
}

func cut(s string) string { return s[:min(len(s), 500)] }
