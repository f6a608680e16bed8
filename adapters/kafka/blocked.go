package kafka

import (
	"context"
	"fmt"

	"github.com/idemq/idemq/consumer"
)

// block notes that m's key goes no further. Told once in a session: the dead letters themselves are in the log.
func (p *partition) block(ctx context.Context, m *consumer.Message) {
	p.mu.Lock()
	first := p.blocked == nil
	if first {
		p.blocked = fmt.Errorf("kafka: the key of %v is blocked by its dead letter", m.Position)
	}
	p.mu.Unlock()
	if first {
		p.s.r.log.WarnContext(ctx, "a key is blocked by its dead letter; when it has further messages, the partition goes on until Config.MaxAhead messages lie beyond them", "message", m.Position.String())
	}
}

func (p *partition) blockedBy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocked
}

// tellStanding finds partitions that a blocked key has brought to a stop, and tells each once.
func (s *session) tellStanding() {
	for _, p := range s.parts {
		if phase, _ := p.route.gate.Phase(); phase != consumer.PhaseRunning || p.lanes.Room() {
			continue
		}
		p.mu.Lock()
		told := p.stands || p.blocked == nil
		if !told {
			p.stands = true
			p.blocked = fmt.Errorf("%w; the partition stands still: too much lies beyond the key's next message", p.blocked)
		}
		why := p.blocked
		p.mu.Unlock()
		if !told {
			s.r.log.WarnContext(s.over, "partition stands still behind a blocked key, until the next rebalance or start", "topic", p.tp.Topic, "partition", p.tp.Partition, "err", why)
		}
	}
}
