package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

var learning = []behaviour{
	{log, "a log is not told: errors.ErrUnsupported for each record, and nothing is written", func(t *testing.T, s *subject) {
		rec := s.record(t, "1", dedupe.StateDone)
		errs := s.Learn(t.Context(), []dedupe.Record{rec, rec}, retention)
		equal(t, "errors", len(errs), 2)
		for _, err := range errs {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("error %v, want errors.ErrUnsupported", err)
			}
		}
		equal(t, "state", s.inspect(t, rec.Key).State, dedupe.StateAbsent)
	}},
	{told, "a learned record of each state answers as if the store had written it", func(t *testing.T, s *subject) {
		for state, want := range map[dedupe.State]dedupe.Verdict{
			dedupe.StateFree: dedupe.Claimed, dedupe.StateClaimed: dedupe.Busy, dedupe.StateDead: dedupe.Dead, dedupe.StateDone: dedupe.Done,
		} {
			rec := s.record(t, state.String(), state)
			s.learn(t, rec)
			got := s.inspect(t, rec.Key)
			equal(t, "state", got.State, state)
			equal(t, "owner", got.Owner, rec.Owner)
			equal(t, "incarnation", got.Incarnation, rec.Incarnation)
			equal(t, "failures, deaths, deaths alone, generation", counts(got), counts(rec))
			reply := s.claim(t, s.claimRequest(rec.Key, newOwner()))
			isVerdict(t, reply, want)
			switch want {
			case dedupe.Done:
				equal(t, "result", string(reply.Record.Result), string(rec.Result))
				equal(t, "fingerprint", reply.Record.Fingerprint, rec.Fingerprint)
				isKeptFor(t, reply.Record, retention)
			case dedupe.Dead:
				equal(t, "reason", reply.Record.Reason, rec.Reason)
			case dedupe.Claimed:
				equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), counts(rec))
			}
		}
	}},
	{told, "a learned claim ends after the lease that is left, and is taken over like any other", func(t *testing.T, s *subject) {
		rec := s.record(t, "1", dedupe.StateClaimed)
		rec.LeaseLeft, rec.Alone = short, true
		s.learn(t, rec)
		s.h.Advance(t, past)
		reply := s.claim(t, s.claimRequest(rec.Key, newOwner()))
		isClaimed(t, reply)
		equal(t, "taken", reply.Taken, true)
		equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{2, 2, 2, 0})
	}},
	{told, "a learned record replaces the claim that the store gave away", func(t *testing.T, s *subject) {
		for _, state := range []dedupe.State{dedupe.StateFree, dedupe.StateClaimed, dedupe.StateDead, dedupe.StateDone} {
			g := s.claimed(t, s.key(t, state.String()))
			rec := s.record(t, state.String(), state)
			s.learn(t, rec)
			got := s.inspect(t, g.Key)
			equal(t, "state", got.State, state)
			equal(t, "owner", got.Owner, rec.Owner)
			if reply := s.complete(t, completeRequest(g)); !errors.Is(reply.Err, dedupe.ErrStale) {
				t.Fatalf("complete of the replaced claim answered %v, want ErrStale", say(reply))
			}
		}
	}},
	{told, "done of the same incarnation is never overwritten by what is learned", func(t *testing.T, s *subject) {
		for _, state := range []dedupe.State{dedupe.StateFree, dedupe.StateClaimed, dedupe.StateDead, dedupe.StateDone} {
			g := s.done(t, s.key(t, state.String()))
			before := s.inspect(t, g.Key)
			rec := s.record(t, state.String(), state)
			rec.Generation = 9
			s.learn(t, rec)
			sameRecord(t, "the record after learning "+state.String(), s.inspect(t, g.Key), before)
		}
	}},
	{told, "done of another incarnation is overwritten by what is learned", func(t *testing.T, s *subject) {
		for _, state := range []dedupe.State{dedupe.StateFree, dedupe.StateClaimed, dedupe.StateDead, dedupe.StateDone} {
			g := s.done(t, s.key(t, state.String()))
			rec := s.record(t, state.String(), state)
			rec.Incarnation = "incarnation-2"
			s.learn(t, rec)
			got := s.inspect(t, g.Key)
			equal(t, "state", got.State, state)
			equal(t, "incarnation", got.Incarnation, rec.Incarnation)
		}
	}},
	{told, "a higher generation is not overwritten by dead, free or claimed of a lower one", func(t *testing.T, s *subject) {
		for _, state := range []dedupe.State{dedupe.StateFree, dedupe.StateClaimed, dedupe.StateDead} {
			k := s.key(t, state.String())
			s.dead(t, k)
			r := s.claimRequest(k, newOwner())
			r.Redriven = true
			s.claimedWith(t, r)
			before := s.inspect(t, k)
			equal(t, "generation", before.Generation, 1)
			s.learn(t, s.record(t, state.String(), state))
			sameRecord(t, "the record after learning "+state.String(), s.inspect(t, k), before)
		}
	}},
	{told, "done is right whatever its generation: it overwrites a higher one", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.dead(t, k)
		r := s.claimRequest(k, newOwner())
		r.Redriven = true
		s.claimedWith(t, r)
		equal(t, "generation", s.inspect(t, k).Generation, 1)
		rec := s.record(t, "1", dedupe.StateDone)
		s.learn(t, rec)
		got := s.inspect(t, k)
		equal(t, "state", got.State, dedupe.StateDone)
		equal(t, "owner", got.Owner, rec.Owner)
	}},
	{told, "a higher generation replaces a lower one with its own counts", func(t *testing.T, s *subject) {
		g := s.failed(t, s.key(t, "1"))
		s.failed(t, g.Key)
		rec := s.record(t, "1", dedupe.StateFree)
		rec.Generation, rec.Failures, rec.Deaths, rec.AloneDeaths = 1, 1, 0, 0
		s.learn(t, rec)
		equal(t, "failures, deaths, deaths alone, generation", counts(s.inspect(t, g.Key)), [4]int{1, 0, 0, 1})
	}},
	{told, "counts are not lost by learning: of two records of one generation the larger count stays", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.expired(t, k)
		s.failed(t, k) // a takeover: the log need not know of this death
		rec := s.record(t, "1", dedupe.StateFree)
		rec.Failures, rec.Deaths, rec.AloneDeaths = 5, 0, 0
		s.learn(t, rec)
		equal(t, "failures, deaths, deaths alone, generation", counts(s.inspect(t, k)), [4]int{5, 1, 0, 0})
	}},
	{told, "the fence does not go back by learning", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		fence := s.claim(t, s.claimRequest(k, newOwner())).Record.Fence
		s.learn(t, s.record(t, "1", dedupe.StateFree)) // with fence 1
		reply := s.claim(t, s.claimRequest(k, newOwner()))
		isClaimed(t, reply)
		if reply.Record.Fence <= fence {
			t.Fatalf("fence is %d after %d", reply.Record.Fence, fence)
		}
	}},
	{told, "one record that says nothing is refused, and its neighbours are learned", func(t *testing.T, s *subject) {
		g := s.failed(t, s.key(t, "1"))
		before := s.inspect(t, g.Key)
		good := s.record(t, "2", dedupe.StateDone)
		errs := s.Learn(t.Context(), []dedupe.Record{{Key: g.Key, Incarnation: s.incarnation}, {State: dedupe.StateDone}, good}, retention)
		equal(t, "errors", len(errs), 3)
		isRefused(t, errs[0])
		isRefused(t, errs[1])
		if errs[2] != nil {
			t.Fatalf("error %v for a good record", errs[2])
		}
		sameRecord(t, "the record", s.inspect(t, g.Key), before)
		equal(t, "state of the neighbour", s.inspect(t, good.Key).State, dedupe.StateDone)
	}},
	{told, "the same key twice in what is learned is decided in order", func(t *testing.T, s *subject) {
		free, done := s.record(t, "1", dedupe.StateFree), s.record(t, "1", dedupe.StateDone)
		for _, err := range s.Learn(t.Context(), []dedupe.Record{free, done, free}, retention) {
			if err != nil {
				t.Fatalf("Learn: %v", err)
			}
		}
		equal(t, "state", s.inspect(t, free.Key).State, dedupe.StateDone)
	}},
	{told, "what is learned is kept for the given time", func(t *testing.T, s *subject) {
		for _, state := range []dedupe.State{dedupe.StateFree, dedupe.StateDead, dedupe.StateDone} {
			rec := s.record(t, state.String(), state)
			if err := only(t, s.Learn(t.Context(), []dedupe.Record{rec}, short)); err != nil {
				t.Fatalf("Learn: %v", err)
			}
			s.h.Advance(t, past)
			equal(t, "state", s.inspect(t, rec.Key).State, dedupe.StateAbsent)
		}
	}},
	{told, "a learned claim is kept while its lease lasts, however short the given time", func(t *testing.T, s *subject) {
		rec := s.record(t, "1", dedupe.StateClaimed)
		if err := only(t, s.Learn(t.Context(), []dedupe.Record{rec}, short)); err != nil {
			t.Fatalf("Learn: %v", err)
		}
		s.h.Advance(t, past)
		isVerdict(t, s.claim(t, s.claimRequest(rec.Key, newOwner())), dedupe.Busy)
	}},
}

// record is one as a log returns it.
func (s *subject) record(t *testing.T, id string, state dedupe.State) dedupe.Record {
	t.Helper()
	rec := dedupe.Record{
		Key: s.key(t, id), State: state, Owner: newOwner(), Fence: 1, Failures: 2, Deaths: 1, AloneDeaths: 1,
		Incarnation: s.incarnation, Fingerprint: fingerprint("logged body"), CreatedAt: time.Now(), UpdatedAt: time.Now(),
	}
	switch state {
	case dedupe.StateClaimed:
		rec.LeaseLeft = live
	case dedupe.StateDead:
		rec.Reason = "kills-its-process"
	case dedupe.StateDone:
		rec.Result, rec.ExpiresAt = []byte("logged result"), time.Now().Add(retention)
	}
	return rec
}
