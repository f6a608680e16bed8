package kafka

import (
	"context"
	"errors"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/internal/lanes"
)

const (
	// keeperBound is more than a cluster takes to give a dead coordinator's groups to another broker: its session of 9 s and up to 3 s.
	keeperBound = 20 * time.Second
	keeperPause = 100 * time.Millisecond
	keeperCall  = 2 * time.Second
)

// keep returns once the group has a coordinator that answers, at most after keeperBound, at once when ctx ends.
//
// It is the last thing that a generation does. kafka-go, when it cannot find the coordinator, forgets its member id; the id stays in the
// group until its session ends, and every join waits for it. With a coordinator that answers it joins again under the same id. The
// question is an OffsetFetch, which only the coordinator answers; kafka-go's Heartbeat would ask any broker.
func (r *run) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, keeperBound, errNoCoordinator)
	defer cancel()
	for {
		err := r.askCoordinator(ctx)
		if err == nil || !transient(err) {
			return nil
		}
		if err := lanes.Sleep(ctx, keeperPause); err != nil {
			return err
		}
	}
}

var errNoCoordinator = errors.New("the group has no coordinator")

func (r *run) askCoordinator(ctx context.Context) error {
	_, err := r.committed(ctx, r.client, map[string][]int{r.plan.topics()[0]: {0}})
	return err
}

// committed asks for the group's offsets; -1 where nothing is committed.
func (r *run) committed(ctx context.Context, client *kafkago.Client, of map[string][]int) (map[string][]kafkago.OffsetFetchPartition, error) {
	ctx, cancel := context.WithTimeout(ctx, keeperCall)
	defer cancel()
	res, err := client.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: r.cfg.Group, Topics: of})
	if err != nil {
		return nil, err
	}
	if res.Error != nil {
		return nil, res.Error
	}
	for _, ps := range res.Topics {
		for _, p := range ps {
			if p.Error != nil {
				return nil, p.Error
			}
		}
	}
	return res.Topics, nil
}

// transient: no answer, or a coordinator that is being chosen or still reads the group.
func transient(err error) bool {
	var k kafkago.Error
	if !errors.As(err, &k) {
		return true
	}
	switch k {
	case kafkago.GroupLoadInProgress, kafkago.GroupCoordinatorNotAvailable, kafkago.NotCoordinatorForGroup, kafkago.BrokerNotAvailable,
		kafkago.RequestTimedOut, kafkago.NetworkException:
		return true
	}
	return false
}
