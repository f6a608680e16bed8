package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/adapters/memory"
	"github.com/idemq/idemq/consumer"
)

// Random traffic: duplicates, failures, retry tiers, poison messages, replays, members that come and go. Whatever happens, each id takes
// effect once or is a dead letter, and nothing is left.
func TestConsumer_RandomTraffic_AppliesEachOnceOrLettersIt(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			rnd := rand.New(rand.NewPCG(seed, 1))
			const ids = 40
			poison := func(id string) bool { return id[len(id)-1] == '7' }
			work := func(_ context.Context, m *consumer.Message) error {
				time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
				switch {
				case poison(m.ID()) && rand.IntN(2) == 0:
					panic("poison")
				case poison(m.ID()) || rand.IntN(5) == 0:
					return errNoStock
				}
				return nil
			}
			policy := func(c *consumer.Config) {
				c.Policy = consumer.Policy{
					Order: consumer.OrderNone, Concurrency: 4,
					Retry: consumer.Retry{Attempts: 30, InPlace: 2, Tiers: []time.Duration{time.Second, 5 * time.Second}},
				}
			}
			var stops []func() error
			for range 200 {
				b.publish(fmt.Sprint(rnd.IntN(ids)))
				switch rnd.IntN(20) {
				case 0, 1:
					if len(stops) < 4 {
						stops = append(stops, b.start(b.consumer(work, policy)))
					}
				case 2:
					if len(stops) > 0 {
						require.NoError(t, stops[0]())
						stops = stops[1:]
					}
				case 3:
					require.NoError(t, b.broker.Redeliver(group, "orders"))
				}
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			}
			stops = append(stops, b.start(b.consumer(work, policy)))
			b.settled()
			for _, stop := range stops {
				require.NoError(t, stop())
			}
			dead := map[string]int{}
			for _, d := range b.letters() {
				dead[d.ID]++
			}
			sent := map[string]bool{}
			for _, m := range b.broker.Messages("orders") {
				id, _ := m.Headers.Get("msg_id")
				sent[id] = true
			}
			for id := range sent {
				require.Equal(t, 1, b.applied(id)+dead[id], "%s: applied %d, letters %d", id, b.applied(id), dead[id])
				require.Equal(t, poison(id), dead[id] == 1, id)
			}
			require.Equal(t, memory.DefaultPartitions, len(partitions(b)))
		})
	}
}

func partitions(b *bench) map[int32]bool {
	ps := map[int32]bool{}
	for _, m := range b.broker.Messages("orders") {
		ps[m.Partition] = true
	}
	return ps
}
