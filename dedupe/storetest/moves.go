package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

var moves = []behaviour{
	{every, "each operation on each state does what the table says", func(t *testing.T, s *subject) {
		runTable(t, s, table)
	}},
	{log, "each unclaimed operation on each state does what the table says", func(t *testing.T, s *subject) {
		runTable(t, s, unclaimedTable)
	}},
}

// The tables say what an operation of one owner ("mine") does to a key, for each state that the key may be in.
//
//	takes          Claimed, and the key has the state of the operation and the owner mine
//	again          Claimed, for the state is there already, written by mine: nothing changes
//	busy done dead that verdict of Claim; nothing changes
//	!busy !done !dead !none
//	               ErrStale with that verdict; nothing changes
//	?              not expected
const table = `
operation       | absent | free, mine | free | claimed, mine | expired, mine | claimed | expired | dead, mine | dead  | done, mine | done
claim           | takes  | ?          | takes| takes         | takes         | busy    | takes   | dead       | dead  | done       | done
claim redriven  | takes  | ?          | takes| takes         | takes         | busy    | takes   | ?          | takes | done       | done
renew           | !none  | !none      | !none| takes         | takes         | !busy   | !busy   | !dead      | !dead | !done      | !done
complete        | !none  | !none      | !none| takes         | takes         | !busy   | !busy   | !dead      | !dead | again      | !done
release failed  | !none  | again      | !none| takes         | takes         | !busy   | !busy   | !dead      | !dead | !done      | !done
release         | !none  | again      | !none| takes         | takes         | !busy   | !busy   | !dead      | !dead | !done      | !done
bury            | !none  | !none      | !none| takes         | takes         | !busy   | !busy   | again      | !dead | !done      | !done
`

const unclaimedTable = `
operation          | absent | free, mine | free  | claimed, mine | expired, mine | claimed | expired | dead, mine | dead  | done, mine | done
complete           | takes  | takes      | takes | takes         | takes         | !busy   | takes   | !dead      | !dead | again      | !done
complete redriven  | takes  | takes      | takes | takes         | takes         | !busy   | takes   | takes      | takes | again      | !done
release failed     | takes  | again      | takes | takes         | takes         | !busy   | takes   | !dead      | !dead | !done      | !done
release redriven   | takes  | again      | takes | takes         | takes         | !busy   | takes   | ?          | takes | !done      | !done
bury               | takes  | takes      | takes | takes         | takes         | !busy   | takes   | again      | takes | !done      | !done
`

// operations are the rows of the tables: how to do it, and what state it leads to.
type operation struct {
	to dedupe.State
	do func(t *testing.T, s *subject, unclaimed bool, gs []dedupe.Grip) []dedupe.Reply
}

var operations = map[string]operation{
	"claim":             {dedupe.StateClaimed, doClaim(false)},
	"claim redriven":    {dedupe.StateClaimed, doClaim(true)},
	"renew":             {dedupe.StateClaimed, doRenew},
	"complete":          {dedupe.StateDone, doComplete(false)},
	"complete redriven": {dedupe.StateDone, doComplete(true)},
	"release":           {dedupe.StateFree, doRelease(false, false)},
	"release failed":    {dedupe.StateFree, doRelease(true, false)},
	"release redriven":  {dedupe.StateFree, doRelease(true, true)},
	"bury":              {dedupe.StateDead, doBury},
}

func doClaim(redriven bool) func(*testing.T, *subject, bool, []dedupe.Grip) []dedupe.Reply {
	return func(t *testing.T, s *subject, _ bool, gs []dedupe.Grip) []dedupe.Reply {
		return s.Claim(t.Context(), requestsOf(gs, func(g dedupe.Grip) dedupe.ClaimRequest {
			r := s.claimRequest(g.Key, g.Owner)
			r.Redriven = redriven
			return r
		}))
	}
}

func doRenew(t *testing.T, s *subject, _ bool, gs []dedupe.Grip) []dedupe.Reply {
	return s.Renew(t.Context(), requestsOf(gs, renewRequest))
}

func doComplete(redriven bool) func(*testing.T, *subject, bool, []dedupe.Grip) []dedupe.Reply {
	return func(t *testing.T, s *subject, unclaimed bool, gs []dedupe.Grip) []dedupe.Reply {
		return s.Complete(t.Context(), requestsOf(gs, func(g dedupe.Grip) dedupe.CompleteRequest {
			r := completeRequest(g)
			r.Unclaimed, r.Redriven = unclaimed, redriven
			return r
		}))
	}
}

func doRelease(failed, redriven bool) func(*testing.T, *subject, bool, []dedupe.Grip) []dedupe.Reply {
	return func(t *testing.T, s *subject, unclaimed bool, gs []dedupe.Grip) []dedupe.Reply {
		return s.Release(t.Context(), requestsOf(gs, func(g dedupe.Grip) dedupe.ReleaseRequest {
			r := failedRequest(g)
			r.Failed, r.Unclaimed, r.Redriven = failed, unclaimed, redriven
			return r
		}))
	}
}

func doBury(t *testing.T, s *subject, unclaimed bool, gs []dedupe.Grip) []dedupe.Reply {
	return s.Bury(t.Context(), requestsOf(gs, func(g dedupe.Grip) dedupe.BuryRequest {
		r := buryRequest(g)
		r.Unclaimed = unclaimed
		return r
	}))
}

func requestsOf[R any](gs []dedupe.Grip, request func(dedupe.Grip) R) []R {
	reqs := make([]R, len(gs))
	for i, g := range gs {
		reqs[i] = request(g)
	}
	return reqs
}

// bring brings k into a state by whoever g is.
var bring = map[string]func(t *testing.T, s *subject, g dedupe.Grip){
	"absent": func(*testing.T, *subject, dedupe.Grip) {},
	"free": func(t *testing.T, s *subject, g dedupe.Grip) {
		bringTo(t, s, g)
		isClaimed(t, s.release(t, failedRequest(g)))
	},
	"claimed": bringTo,
	"expired": func(t *testing.T, s *subject, g dedupe.Grip) {
		t.Helper()
		r := s.claimRequest(g.Key, g.Owner)
		r.Lease = short // the table waits once for all keys
		isClaimed(t, s.claim(t, r))
	},
	"dead": func(t *testing.T, s *subject, g dedupe.Grip) {
		bringTo(t, s, g)
		isClaimed(t, s.bury(t, buryRequest(g)))
	},
	"done": func(t *testing.T, s *subject, g dedupe.Grip) {
		bringTo(t, s, g)
		isClaimed(t, s.complete(t, completeRequest(g)))
	},
}

func bringTo(t *testing.T, s *subject, g dedupe.Grip) {
	t.Helper()
	isClaimed(t, s.claim(t, s.claimRequest(g.Key, g.Owner)))
}

func cells(line string) []string {
	fields := strings.Split(line, "|")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	return fields
}

func runTable(t *testing.T, s *subject, text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	states := cells(lines[0])[1:]
	type row struct {
		operation string
		want      []string
		grips     []dedupe.Grip // mine, one for each state
	}
	var rows []row
	for i, line := range lines[1:] {
		r := row{operation: cells(line)[0], want: cells(line)[1:]}
		for _, state := range states {
			k := s.key(t, fmt.Sprintf("%d %s %s", i, r.operation, state))
			mine := s.grip(k, newOwner())
			r.grips = append(r.grips, mine)
			state, isMine := strings.CutSuffix(state, ", mine")
			if isMine {
				bring[state](t, s, mine)
			} else {
				bring[state](t, s, s.grip(k, newOwner()))
			}
		}
		rows = append(rows, r)
	}
	s.h.Advance(t, past)
	for _, r := range rows {
		op := operations[r.operation]
		before := s.inspectAll(t, r.grips)
		replies := op.do(t, s, text == unclaimedTable, r.grips)
		if len(replies) != len(r.grips) {
			t.Fatalf("%s: %d requests, %d replies", r.operation, len(r.grips), len(replies))
		}
		after := s.inspectAll(t, r.grips)
		for i, want := range r.want {
			t.Run(r.operation+" of "+states[i], func(t *testing.T) {
				cell{want, r.grips[i].Owner, op.to, before[i], after[i], replies[i]}.check(t)
			})
		}
	}
}

func (s *subject) inspectAll(t *testing.T, gs []dedupe.Grip) []dedupe.Record {
	t.Helper()
	recs, err := s.Inspect(t.Context(), requestsOf(gs, func(g dedupe.Grip) dedupe.Key { return g.Key }))
	if err != nil || len(recs) != len(gs) {
		t.Fatalf("Inspect of %d keys: %d records, error %v", len(gs), len(recs), err)
	}
	return recs
}

// cell is one cell of a table, and what happened.
type cell struct {
	want          string
	mine          dedupe.Owner
	to            dedupe.State
	before, after dedupe.Record
	reply         dedupe.Reply
}

func (c cell) check(t *testing.T) {
	verdicts := map[string]dedupe.Verdict{"busy": dedupe.Busy, "dead": dedupe.Dead, "done": dedupe.Done, "none": 0}
	switch c.want {
	case "?":
	case "takes":
		isClaimed(t, c.reply)
		equal(t, "state", c.after.State, c.to)
		equal(t, "owner", c.after.Owner, c.mine)
		sameRecord(t, "the reply's record", c.reply.Record, c.after)
	case "again":
		isClaimed(t, c.reply)
		sameRecord(t, "the record after the call", c.after, c.before)
	default:
		if verdict, stale := strings.CutPrefix(c.want, "!"); stale {
			isStale(t, c.reply, verdicts[verdict])
		} else {
			isVerdict(t, c.reply, verdicts[c.want])
		}
		sameRecord(t, "the record after the call", c.after, c.before)
		sameRecord(t, "the reply's record", c.reply.Record, c.after)
	}
}

// sameRecord compares what no clock changes by itself.
func sameRecord(t *testing.T, what string, got, want dedupe.Record) {
	t.Helper()
	got, want = timeless(got), timeless(want)
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s is\n%+v, want\n%+v", what, got, want)
	}
}

func timeless(r dedupe.Record) dedupe.Record {
	r.LeaseLeft = 0
	r.CreatedAt, r.UpdatedAt, r.ExpiresAt = r.CreatedAt.UTC().Round(0), time.Time{}, r.ExpiresAt.UTC().Round(0)
	if len(r.Result) == 0 {
		r.Result = nil
	}
	return r
}
