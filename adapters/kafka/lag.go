package kafka

import (
	"context"
	"time"

	"github.com/idemq/idemq/internal/hook"
)

func lagOf(parts []*partition) map[TopicPartition]int64 {
	out := map[TopicPartition]int64{}
	for _, p := range parts {
		mark, ok := p.watermark()
		if end := p.end.Load(); ok && end >= 0 {
			out[p.tp] = max(end-mark, 0) // the end is of the last answer
		}
	}
	return out
}

func (r *run) tellLag(ctx context.Context, parts []*partition) {
	if !has[HookLag](r.c) {
		return
	}
	for tp, n := range lagOf(parts) {
		hook.Each(ctx, r.log, r.cfg.Hooks, func(h HookLag) { h.OnLag(ctx, tp, n) })
	}
}

// refreshEnds asks for the ends of partitions that have not been fetched for a while: their fetching is paused, and their lag grows
// unseen.
func (r *run) refreshEnds(ctx context.Context, parts []*partition, older time.Duration) {
	var tps []TopicPartition
	for _, p := range parts {
		if time.Since(time.Unix(0, p.fetched.Load())) > older {
			tps = append(tps, p.tp)
		}
	}
	if len(tps) == 0 {
		return
	}
	found, err := listBounds(ctx, r.client, tps)
	if err != nil {
		r.log.DebugContext(ctx, "cannot ask for the lag of paused partitions", "err", err)
	}
	for _, p := range parts {
		if b, ok := found[p.tp]; ok {
			p.end.Store(b.end)
		}
	}
}
