package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/dedupe"
)

// without are the flags that help does not show: one set of variables serves all commands, so each takes them all.
var without = map[string][]string{
	"reset":   {"workers", "session"},
	"produce": {"group", "redis", "db", "mode", "policy", "workers", "session", "lease"},
	"check":   {"workers", "session"},
}

func hideWhatDoesNotApply(parser *kong.Kong) {
	for _, command := range parser.Model.Children {
		for _, f := range command.Flags {
			f.Hidden = f.Hidden || slices.Contains(without[command.Name], f.Name)
		}
	}
}

// unknownCommand is the error for a first word that is no command. The parser would call it an argument of demo.
func unknownCommand(parser *kong.Kong, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	var names []string
	for _, command := range parser.Model.Children {
		names = append(names, command.Name)
	}
	if slices.Contains(names, args[0]) {
		return nil
	}
	return fmt.Errorf("unknown command %q; there are %s", args[0], strings.Join(names, ", "))
}

var (
	flagAlone = regexp.MustCompile(`^--[a-z-]+$`)
	negative  = regexp.MustCompile(`^-[0-9.]`)
)

// withNegatives writes "--workers -1" as "--workers=-1": the parser takes -1 for a flag.
func withNegatives(args []string) []string {
	var out []string
	for _, arg := range args {
		if n := len(out); n > 0 && negative.MatchString(arg) && flagAlone.MatchString(out[n-1]) {
			out[n-1] += "=" + arg
			continue
		}
		out = append(out, arg)
	}
	return out
}

// suggestReset adds the remedy that this program has and a library cannot know.
func suggestReset(err error) error {
	switch {
	case errors.Is(err, kafkago.UnknownTopicOrPartition):
		return fmt.Errorf("%w (or run reset, which makes it)", err)
	case errors.Is(err, dedupe.ErrWrongMode):
		return fmt.Errorf("%w (here: give the --mode that it runs in, or run reset, which begins anew in this one)", err)
	}
	return err
}
