// Inventory is a program that a team could start from: orders come by a topic and take pieces out of a stock, each order once,
// whatever is delivered again.
//
//	inventory                     a demonstration with everything in it: no broker, no Redis, no database needed
//	inventory reset|produce|consume|check --db URL ...    the same against real services
//
// Read it from orders.go (the handler) by consume.go (the wiring) to check.go (how we know). Exit status: 0 all is well,
// 1 something was lost or applied twice, 2 the command could not do its work or the answer is not known yet.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type commands struct {
	Demo    demoCmd    `cmd:"" default:"withargs" help:"Show it: worker processes are killed, messages delivered again, Redis lost. Needs nothing installed. The default command."`
	Reset   resetCmd   `cmd:"" help:"Make topic, tables and stock anew, and forget what was consumed."`
	Produce produceCmd `cmd:"" help:"Place orders, some of them sent twice."`
	Consume consumeCmd `cmd:"" help:"Apply orders until SIGINT or SIGTERM. Run it in as many processes as you like."`
	Check   checkCmd   `cmd:"" help:"Compare stock, movements, dead letters and orders. Exit status: 0 all is well; 1 lost, or applied twice in transactional mode (the others report it); 2 not known yet."`
}

const (
	exitWrong   = 1 // lost or applied twice
	exitNoReply = 2 // could not do it, or not known yet
)

// wrong is the error of a check that found something lost or applied twice.
type wrong struct{ what string }

func (w wrong) Error() string { return w.what }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for a clean end
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	parser, err := kong.New(&commands{},
		kong.Name("inventory"),
		kong.Description("Orders take pieces out of a stock, each order once. Each flag may be an environment variable: INVENTORY_DB for --db."),
		kong.DefaultEnvars("INVENTORY"),
		kong.Writers(stdout, stderr),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(terminal{out: stdout, err: stderr}),
	)
	if err != nil {
		panic(err) // the commands above are malformed
	}
	hideWhatDoesNotApply(parser)
	err = unknownCommand(parser, args)
	var command *kong.Context
	if err == nil {
		command, err = parser.Parse(withNegatives(args))
	}
	if err == nil {
		err = suggestReset(command.Run())
	}
	var w wrong
	switch {
	case err == nil:
		return 0
	case errors.As(err, &w):
		fmt.Fprintln(stderr, "inventory:", err)
		return exitWrong
	default:
		fmt.Fprintln(stderr, "inventory:", err)
		return exitNoReply
	}
}
