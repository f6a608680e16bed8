package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/idemq/idemq/dedupe"
)

// ErrForeign: the value at the key is of a format that is not ours, or of a newer version. Nothing was written. Where Remember made
// Redis the authority of the scope it stands alone, since repeating cannot mend it; else it is ErrUnavailable too, which means: ask the
// log. Remedy: run the newer version everywhere, or remove the value by hand if it is somebody else's.
var ErrForeign = errors.New("value of a foreign format or a newer version")

// errOpen is the cause of ErrUnavailable while a breaker is open.
var errOpen = errors.New("redis has not been answering; the breaker is open")

// notDone are the codes by which a server says that it did nothing. Each script writes at most once, so they hold for scripts too.
var notDone = []string{
	"OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "MISCONF", "NOREPLICAS", "NOSCRIPT",
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED",
}

// passing are those of notDone that a cluster or a starting server says for a moment only.
var passing = []string{"TRYAGAIN", "MOVED", "ASK", "LOADING", "MASTERDOWN", "CLUSTERDOWN"}

// refusing are those of notDone that no waiting mends.
var refusing = []string{"NOAUTH", "WRONGPASS", "NOPERM"}

// codeOf is the code of an error that the server answered with; empty for other errors, also for those of the connection.
func codeOf(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	text := answer.Error()
	switch {
	case errors.Is(err, redis.Nil): // a sentinel that does not know the master
		return "CLUSTERDOWN"
	case strings.HasPrefix(text, "ERR max number of clients"):
		return "BUSY"
	case strings.HasPrefix(text, "ERR Protocol error: unauthenticated"): // too many arguments for a connection without password
		return "NOAUTH"
	case strings.HasPrefix(text, "ERR The user executing the script can't"): // Redis 7.0
		return "NOPERM"
	case scriptFailure.MatchString(text): // Redis 6 puts the cause behind the script's line
		return scriptFailure.FindStringSubmatch(text)[1]
	}
	code, _, _ := strings.Cut(text, " ")
	return code
}

var scriptFailure = regexp.MustCompile(`^ERR .*@user_script: ?[0-9]+: -?([A-Z]+) `)

// answered says whether the server answered, if only with an error.
func answered(err error) bool {
	return err == nil || codeOf(err) != ""
}

// classify says what may be concluded from the error of a command that was given to the client.
func classify(err error) error {
	code := codeOf(err)
	var op *net.OpError
	switch {
	case err == nil:
		return nil
	case code == "WRONGTYPE":
		return fmt.Errorf("%w: %w", ErrForeign, err)
	case slices.Contains(refusing, code):
		return fmt.Errorf("%w: %w", dedupe.ErrUnavailable, &refusedError{err})
	case slices.Contains(notDone, code):
		return fmt.Errorf("%w: %w", dedupe.ErrUnavailable, err)
	case code != "":
		return err
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed),
		errors.As(err, &op) && op.Op == "dial": // no connection, so nothing was sent; commands are not retried (see onceCmd)
		return fmt.Errorf("%w: %w", dedupe.ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: %w", dedupe.ErrOutcomeUnknown, err)
	}
}

// refusedError is an answer by which a server refuses us, with the remedy.
type refusedError struct{ answer error }

func (e *refusedError) Error() string {
	return fmt.Sprintf("redis refuses us (%s): %v; set user and password in the URL or the client's options, and allow the user +@scripting, +@read, +@write, +ping and +info on the keys of Config.Prefix",
		codeOf(e.answer), e.answer)
}

func (e *refusedError) Unwrap() error { return e.answer }

// readOnly turns ErrOutcomeUnknown, which says nothing about a call that changes nothing or may simply be repeated, into ErrUnavailable.
func readOnly(err error) error {
	if errors.Is(err, dedupe.ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %w", dedupe.ErrUnavailable, rootOf(err))
	}
	return err
}

// rootOf is the cause that classify wrapped, however deep.
func rootOf(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if both, ok := e.(interface{ Unwrap() []error }); ok {
			if errs := both.Unwrap(); len(errs) == 2 {
				return errs[1]
			}
		}
	}
	return err
}

// ended is ErrUnavailable with the cause if ctx has ended: nothing was sent.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", dedupe.ErrUnavailable, context.Cause(ctx))
}

// opError is the one shape of our errors.
func opError(op string, what any, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisstore: %s %v: %w", op, what, err)
}
