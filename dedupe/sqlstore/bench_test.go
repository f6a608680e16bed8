package sqlstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

// A new key in Logged mode: claimed and completed, one at a time and a hundred at a time.
func BenchmarkClaimAndComplete(b *testing.B) {
	for _, d := range all {
		for _, batch := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d", d.name, batch), func(b *testing.B) {
				l, _ := d.migrated(b)
				ctx := context.Background()
				n := 0
				for b.Loop() {
					claims := make([]dedupe.ClaimRequest, batch)
					for i := range claims {
						claims[i] = claimRequest(key(b, fmt.Sprint(n)), newOwner())
						n++
					}
					completes := make([]dedupe.CompleteRequest, batch)
					for i, rep := range l.Claim(ctx, claims) {
						require.NoError(b, rep.Err)
						completes[i] = dedupe.CompleteRequest{
							Grip: dedupe.Grip{Key: claims[i].Key, Owner: claims[i].Owner, Incarnation: rep.Record.Incarnation}, Retention: time.Hour,
						}
					}
					for _, rep := range l.Complete(ctx, completes) {
						require.NoError(b, rep.Err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/message")
			})
		}
	}
}

// A message in Transactional mode, beside the same business transaction without the row.
func BenchmarkTransactional(b *testing.B) {
	for _, d := range all {
		b.Run(d.name+"/bare", func(b *testing.B) {
			s := newShop(b, d)
			ctx := context.Background()
			for n := 0; b.Loop(); n++ {
				tx := s.db.MustBegin()
				require.NoError(b, s.sell(ctx, tx, fmt.Sprint(n)))
				require.NoError(b, tx.Commit())
			}
		})
		b.Run(d.name+"/with the row", func(b *testing.B) {
			s := newShop(b, d)
			ctx := context.Background()
			for n := 0; b.Loop(); n++ {
				_, err := s.consume(ctx, fmt.Sprint(n))
				require.NoError(b, err)
			}
		})
	}
}

// A hundred messages in one transaction.
func BenchmarkTransactionalBatch(b *testing.B) {
	for _, d := range all {
		b.Run(d.name, func(b *testing.B) {
			s := newShop(b, d)
			ctx := context.Background()
			handle := sqlstore.TransactionalBatch(s.log, func(ctx context.Context, tx *sqlx.Tx, fresh []message) error {
				for _, m := range fresh {
					if err := s.sell(ctx, tx, m.c.Key().ID()); err != nil {
						return err
					}
				}
				return nil
			})
			n := 0
			for b.Loop() {
				ds := make([]dedupe.Delivery, 100)
				for i := range ds {
					ds[i] = delivery(fmt.Sprint(n))
					n++
				}
				outs, errs := s.guard.ClaimBatch(ctx, ds)
				ms := make([]message, len(outs))
				claims := make([]*dedupe.Claim, len(outs))
				for i, out := range outs {
					require.NoError(b, errs[i])
					ms[i], claims[i] = message{out.Claim}, out.Claim
				}
				require.NoError(b, handle(ctx, ms))
				_, errs = s.guard.Complete(ctx, claims...)
				for _, err := range errs {
					require.NoError(b, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/message")
		})
	}
}
