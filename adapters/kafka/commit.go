package kafka

import (
	"context"
	"errors"
	"maps"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/internal/hook"
)

// committer commits offsets of one generation, and of no other: the broker would take a commit for any partition, past its end too. Used by
// one goroutine.
type committer struct {
	r   *run
	gen *kafkago.Generation
	// acknowledged by the broker; only what differs is sent, unless the commit is a heartbeat too
	sent map[TopicPartition]int64
	// the generation's own connection has failed, as it does when the coordinator dies: commits go through the Transport
	detour bool
}

// commitInterval is at most a third of the session, since in a drain the commits are the heartbeats.
func commitInterval(session time.Duration) time.Duration { return min(commitEvery, session/3) }

// commit sends what has changed since the last commit; with all, everything.
func (k *committer) commit(ctx context.Context, offsets map[TopicPartition]int64, all bool) error {
	changed := map[string]map[int]int64{}
	for tp, o := range offsets {
		if last, ok := k.sent[tp]; ok && last == o && !all {
			continue
		}
		if changed[tp.Topic] == nil {
			changed[tp.Topic] = map[int]int64{}
		}
		changed[tp.Topic][tp.Partition] = o
	}
	if len(changed) == 0 {
		return nil
	}
	err := k.send(ctx, changed)
	if err == nil {
		maps.Copy(k.sent, offsets)
	}
	hook.Each(ctx, k.r.log, k.r.cfg.Hooks, func(h HookCommit) { h.OnCommit(ctx, k.gen.ID, offsets, err) })
	return err
}

func (k *committer) send(ctx context.Context, offsets map[string]map[int]int64) error {
	if !k.detour {
		err := k.gen.CommitOffsets(offsets)
		var refused kafkago.Error
		if err == nil || errors.As(err, &refused) && !transient(err) {
			return err
		}
		k.detour = true
	}
	return k.r.commitByClient(ctx, k.gen, offsets)
}

// final commits everything once more at the end of the generation; what fails for want of a coordinator is repeated once, when there is one
// or when the consumer stops, which is when stopping ends. It returns when kafka-go may go on to the next generation.
func (k *committer) final(ctx, stopping context.Context, offsets map[TopicPartition]int64) error {
	err := k.commit(ctx, offsets, true)
	kept := k.r.keep(stopping)
	if err != nil && transient(err) {
		k.detour = true
		err = k.commit(ctx, offsets, true)
	}
	if stopping.Err() != nil {
		return err
	}
	return errors.Join(err, kept)
}

// commitByClient is gen.CommitOffsets over other connections. The generation and the member are named, so a coordinator that has gone on
// to another generation refuses it.
func (r *run) commitByClient(ctx context.Context, gen *kafkago.Generation, offsets map[string]map[int]int64) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := &kafkago.OffsetCommitRequest{GroupID: gen.GroupID, GenerationID: int(gen.ID), MemberID: gen.MemberID, Topics: map[string][]kafkago.OffsetCommit{}}
	for t, ps := range offsets {
		for p, o := range ps {
			req.Topics[t] = append(req.Topics[t], kafkago.OffsetCommit{Partition: p, Offset: o})
		}
	}
	res, err := r.client.OffsetCommit(ctx, req)
	if err != nil {
		return err
	}
	for _, ps := range res.Topics {
		for _, p := range ps {
			err = errors.Join(err, p.Error)
		}
	}
	return err
}
