package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

// answer is an error that a server answered with.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// PROTOCOL.md, 4: unknown is unknown; what surely was not done is told apart, and an error of neither kind is no outage.
func TestClassify(t *testing.T) {
	notDone, unknown, neither := dedupe.ErrUnavailable, dedupe.ErrOutcomeUnknown, error(nil)
	for _, c := range []struct {
		err  error
		want error
	}{
		{answer("OOM command not allowed when used memory > 'maxmemory'. script: f00, on @user_script:9."), notDone},
		{answer("ERR Error running script (call to f_00): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'"), notDone},
		{answer("ERR Error running script (call to f_00): @user_script:9: @user_script: 9: -READONLY You can't write against a read only replica."), notDone},
		{answer("READONLY You can't write against a read only replica. script: f00, on @user_script:9."), notDone},
		{answer("LOADING Redis is loading the dataset in memory"), notDone},
		{answer("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), notDone},
		{answer("CLUSTERDOWN The cluster is down"), notDone},
		{answer("TRYAGAIN Multiple keys request during rehashing of slot"), notDone},
		{answer("MOVED 3999 127.0.0.1:6381"), notDone},
		{answer("ASK 3999 127.0.0.1:6381"), notDone},
		{answer("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."), notDone},
		{answer("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."), notDone},
		{answer("NOREPLICAS Not enough good replicas to write."), notDone},
		{answer("NOSCRIPT No matching script. Please use EVAL."), notDone},
		{answer("ERR max number of clients reached"), notDone},
		{answer("NOAUTH Authentication required."), notDone},
		{answer("WRONGPASS invalid username-password pair or user is disabled."), notDone},
		{answer("NOPERM User app has no permissions to run the 'eval' command"), notDone},
		{redis.Nil, notDone},
		{fmt.Errorf("failed to initialize connection: %w", answer("LOADING Redis is loading the dataset in memory")), notDone},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, notDone},
		{fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded})), notDone},
		{redis.ErrPoolTimeout, notDone},
		{redis.ErrPoolExhausted, notDone},
		{redis.ErrClosed, notDone},

		{io.EOF, unknown},
		{io.ErrUnexpectedEOF, unknown},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, unknown},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, unknown},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, unknown},
		{context.DeadlineExceeded, unknown},
		{context.Canceled, unknown},
		{errors.New("redis: something new"), unknown},

		{answer("ERR Error compiling script (new function): user_script:1: '=' expected near 'x'"), neither},
		{answer("ERR unknown command 'evalsha', with args beginning with: "), neither},
		{answer("WRONGTYPE Operation against a key holding the wrong kind of value script: f00, on @user_script:9."), ErrForeign},
		{answer("ERR Error running script (call to f_00): @user_script:9: WRONGTYPE Operation against a key holding the wrong kind of value"), ErrForeign},
	} {
		got := classify(c.err)
		require.ErrorIs(t, got, c.err, "the cause is kept")
		for _, sentinel := range []error{notDone, unknown, ErrForeign} {
			require.Equal(t, sentinel == c.want, errors.Is(got, sentinel), "%v as %v", c.err, sentinel)
		}
	}
	require.NoError(t, classify(nil))
}
